"""Packed messages, and solver jobs with their limits."""

import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from cato.benchmarks import BENCHMARKS
from cato.errors import InputError
from cato.serve import jobs as jobs_module
from cato.serve.jobs import JobSettings, SolverJobs
from cato.serve.wire import pack, unpack


@given(
    arrays(
        st.sampled_from(["u1", "u4", "f4", "f8"]), array_shapes(min_dims=0, min_side=0, max_side=4)
    ),
    st.text(),
)
def test_messages_survive_a_round_trip(array, text):
    sent = {"first": array, "transposed": array.T, "other": np.zeros(3)}
    facts, found = unpack(pack({"text": text}, sent))
    assert facts == {"text": text}
    for name in sent:
        np.testing.assert_array_equal(found[name], sent[name])
        assert found[name].dtype == sent[name].dtype


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data):
    for body in (data, len(data).to_bytes(8, "little") + data):
        with pytest.raises(InputError, match="not in safetensors format"):
            unpack(body)


def test_sizes_that_lie_are_refused():
    body = pack({}, {"values": np.zeros(3)})
    for lie in (b"[9]", b"[-3]", b'"3"', b"[[]]"):
        with pytest.raises(InputError, match="not in safetensors format"):
            unpack(body.replace(b"[3]", lie.ljust(3)))


@pytest.fixture(scope="module")
def solver():
    jobs = SolverJobs(JobSettings(num_processes=1))
    yield jobs
    jobs.close()


def smoke(name):
    benchmark = BENCHMARKS[name]
    return benchmark.editor(benchmark, benchmark.parameters("smoke"))


def test_a_job_finds_what_a_drawn_sample_has(solver):
    editor = smoke("darcy")
    values = editor.draw(np.random.default_rng(3))
    sample = BENCHMARKS["darcy"].sample(np.random.default_rng(3), editor.parameters)
    job = solver.submit(editor, "solve", values)
    facts, found = job.finished.result(60)
    np.testing.assert_array_equal(found["targets"], sample.targets)
    assert facts["seconds"] > 0
    assert job.state == "done"

    editor = smoke("navier_stokes")
    sample = BENCHMARKS["navier_stokes"].sample(np.random.default_rng(3), editor.parameters)
    found = solver.submit(editor, "inputs", np.array([1.0, 1.0, 3.0])).finished.result(60).arrays
    np.testing.assert_array_equal(found["inputs"], sample.inputs)


def test_a_solver_without_an_answer_says_so(solver):
    job = solver.submit(smoke("plasticity"), "solve", np.full(8, -1.0))
    with pytest.raises(InputError, match="not below the block"):
        job.finished.result(60)
    assert job.state == "failed"
    assert "not below the block" in job.message


# Sleeps as long as the last of the values says, dies if that is negative, then answers.
FAKE = """
import struct, sys, time
pipe, reply = sys.stdin.buffer, bytes.fromhex(sys.argv[1])
while head := pipe.read(8):
    seconds = struct.unpack("<d", pipe.read(int.from_bytes(head, "little"))[-8:])[0]
    if seconds < 0:
        sys.exit(1)
    time.sleep(seconds)
    sys.stdout.buffer.write(len(reply).to_bytes(8, "little") + reply)
    sys.stdout.buffer.flush()
"""


@pytest.fixture
def fakes(monkeypatch):
    """Builds job queues on processes that only sleep; a list of these processes is an attribute."""
    processes, queues = [], []
    reply = pack({"error": "", "seconds": 0.0}, {}).hex()

    def start(module, stdout):
        command = [sys.executable, "-c", FAKE, reply]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, bufsize=0)
        processes.append(process)
        return process

    monkeypatch.setattr(jobs_module, "start_module", start)

    def build(**limits):
        queues.append(SolverJobs(JobSettings(**limits)))
        return queues[-1]

    build.processes = processes
    yield build
    for queue in queues:
        queue.close()
    assert all(process.poll() is not None for process in processes)


def submit(queue, seconds):
    return queue.submit(smoke("airfoil"), "solve", np.array([seconds]))


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_jobs_run_one_after_another_in_one_process(fakes):
    queue = fakes(num_processes=1)
    jobs = [submit(queue, 0.0) for _ in range(4)]
    for job in jobs:
        job.finished.result(20)
    assert [job.state for job in jobs] == 4 * ["done"]
    assert len(fakes.processes) == 1


def test_a_cancelled_job_frees_its_process_at_once(fakes):
    queue = fakes(num_processes=1)
    running, waiting, last = submit(queue, 60.0), submit(queue, 60.0), submit(queue, 0.0)
    until(lambda: running.seconds > 0)
    assert waiting.state == "waiting"
    queue.cancel(waiting)
    queue.cancel(running)
    assert (running.state, waiting.state) == ("cancelled", "cancelled")
    last.finished.result(20)
    assert len(fakes.processes) == 2


def test_a_slow_job_is_given_up(fakes):
    queue = fakes(num_processes=1, time_limit=0.3)
    slow, quick = submit(queue, 60.0), submit(queue, 0.0)
    with pytest.raises(InputError, match=r"within 0.3 s"):
        slow.finished.result(20)
    until(lambda: quick.is_over)
    # A new process may itself take longer to start than this limit: given up, but not lost.
    assert quick.state in ("done", "failed")


def test_too_many_jobs_drop_the_oldest(fakes):
    queue = fakes(num_processes=1, max_jobs=3)
    done = submit(queue, 0.0)
    done.finished.result(20)
    running = submit(queue, 60.0)
    until(lambda: running.seconds > 0)
    waiting = submit(queue, 0.0)
    fourth = submit(queue, 0.0)
    assert queue.find(done.id) is None  # finished ones go first
    assert queue.find(running.id) is running
    fifth = submit(queue, 0.0)
    assert queue.find(running.id) is None
    assert running.state == "cancelled"
    assert "too many newer jobs" in running.message
    for job in (waiting, fourth, fifth):
        job.finished.result(20)


def test_a_process_that_dies_fails_its_job_only(fakes):
    queue = fakes(num_processes=1)
    deadly, next_one = submit(queue, -1.0), submit(queue, 0.0)
    with pytest.raises(InputError, match="process died"):
        deadly.finished.result(20)
    next_one.finished.result(20)


def test_closing_ends_jobs_and_processes(fakes):
    queue = fakes(num_processes=2)
    jobs = [submit(queue, 60.0) for _ in range(3)]
    until(lambda: jobs[1].seconds > 0)
    queue.close()
    assert [job.state for job in jobs] == 3 * ["cancelled"]
