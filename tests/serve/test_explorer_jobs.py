"""Solver jobs and their limits, and what travels between the page and the service."""

import os
import time

import numpy as np
import pytest
import tasks
from explored import unpack
from fastapi import HTTPException
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from starlette.requests import Request

from cato.benchmarks import BENCHMARKS
from cato.errors import InputError
from cato.serve import explorer
from cato.serve import jobs as jobs_module
from cato.serve.jobs import SolverJobs
from cato.serve.settings import ServeSettings

ME, OTHER = "192.0.2.1", "192.0.2.2"


@given(
    arrays(
        st.sampled_from(["u1", "u4", "f4", "f8"]), array_shapes(min_dims=0, min_side=0, max_side=4)
    ),
    st.text(),
)
def test_messages_survive_a_round_trip(array, text):
    sent = {"first": array, "transposed": array.T, "other": np.zeros(3)}
    facts, found = unpack(explorer._pack({"text": text}, sent))
    assert facts == {"text": text}
    for name in sent:
        np.testing.assert_array_equal(found[name], sent[name])
        assert found[name].dtype == sent[name].dtype


def read_values(body, media_type=explorer.MEDIA_TYPE):
    headers = [(b"content-type", media_type.encode())]
    return explorer._values(Request({"type": "http", "headers": headers}), body, smoke("airfoil"))


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data):
    for body in (data, len(data).to_bytes(8, "little") + data):
        with pytest.raises(InputError, match="safetensors format"):
            read_values(body)


def test_sizes_that_lie_are_refused():
    body = explorer._pack({}, {"values": np.zeros(7)})
    np.testing.assert_array_equal(read_values(body), np.zeros(7))
    with pytest.raises(HTTPException, match="content type"):
        read_values(body, "text/plain")
    for lie in (b"[9]", b"[-3]", b'"3"', b"[[]]", b"7"):
        with pytest.raises(InputError, match="safetensors format"):
            read_values(body.replace(b"[7]", lie.ljust(3)))


@pytest.fixture(scope="module")
def solver():
    jobs = SolverJobs(ServeSettings(solver_processes=1))
    yield jobs
    jobs.close()


def smoke(name):
    benchmark = BENCHMARKS[name]
    return benchmark.editor(benchmark, benchmark.parameters("smoke"))


def test_a_job_finds_what_a_drawn_sample_has(solver):
    editor = smoke("darcy")
    values = editor.draw(np.random.default_rng(3))
    sample = BENCHMARKS["darcy"].sample(np.random.default_rng(3), editor.parameters)
    job = solver.submit(ME, editor, "solve", values)
    solution = job.result.result(60)
    np.testing.assert_array_equal(solution.arrays["targets"], sample.targets)
    assert solution.seconds > 0
    assert job.state == "done"

    editor = smoke("navier_stokes")
    sample = BENCHMARKS["navier_stokes"].sample(np.random.default_rng(3), editor.parameters)
    found = solver.submit(ME, editor, "inputs", np.array([1.0, 1.0, 3.0])).result.result(60).arrays
    np.testing.assert_array_equal(found["inputs"], sample.inputs)


def test_a_solver_without_an_answer_says_so(solver):
    job = solver.submit(ME, smoke("plasticity"), "solve", np.full(8, -1.0))
    with pytest.raises(InputError, match="not below the block"):
        job.result.result(60)
    assert job.state == "failed"
    assert "not below the block" in job.message


@pytest.fixture
def queue_of(monkeypatch):
    """Builds job queues whose solver only sleeps; at the end all their processes are gone."""
    queues, pids = [], set()
    monkeypatch.setattr(jobs_module, "run_task", tasks.sleep)

    def build(**limits):
        queues.append(SolverJobs(ServeSettings(**limits)))
        return queues[-1]

    build.pids = pids
    yield build
    for queue in queues:
        queue.close()
        for job in queue._jobs.values():
            if job.state == "done":
                pids.add(pid_of(job))
    assert not any(is_alive(pid) for pid in pids)


def submit(queue, seconds, client=ME):
    return queue.submit(client, smoke("airfoil"), "solve", np.array([seconds]))


def pid_of(job):
    """The process that ran a job."""
    return int(job.result.result(60).arrays["pid"])


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_jobs_run_one_after_another_in_one_process(queue_of):
    queue = queue_of(solver_processes=1)
    jobs = [submit(queue, 0.0) for _ in range(4)]
    assert len({pid_of(job) for job in jobs}) == 1
    assert [job.state for job in jobs] == 4 * ["done"]


def test_a_cancelled_job_frees_its_process_at_once(queue_of):
    queue = queue_of(solver_processes=1)
    first = submit(queue, 0.0)
    queue_of.pids.add(pid_of(first))
    running, waiting, last = submit(queue, 600.0), submit(queue, 600.0), submit(queue, 0.0)
    until(lambda: running.seconds > 0.1)
    assert waiting.state == "waiting"
    waiting.cancel()
    running.cancel()
    assert (running.state, waiting.state) == ("cancelled", "cancelled")
    assert not is_alive(pid_of(first))
    assert pid_of(last) != pid_of(first)


def test_a_job_whose_process_is_being_started_can_be_cancelled(queue_of):
    queue = queue_of(solver_processes=1)
    starting, last = submit(queue, 600.0), submit(queue, 0.0)
    until(lambda: starting.state == "running")
    starting.cancel()
    assert pid_of(last)


def test_a_slow_job_is_given_up(queue_of):
    queue = queue_of(solver_processes=1, job_seconds=0.3)
    slow, quick = submit(queue, 600.0), submit(queue, 0.0)
    with pytest.raises(InputError, match=r"within 0.3 s"):
        slow.result.result(60)
    assert slow.state == "failed"
    until(lambda: quick.is_over)
    # A new process may itself need longer than this limit to import the task.
    assert quick.state in ("done", "failed")


def test_nobody_can_drop_or_see_the_job_of_another(queue_of):
    queue = queue_of(solver_processes=1, max_jobs=3, client_jobs=2)
    mine = submit(queue, 0.0)
    assert queue.find(mine.id, ME) is mine
    assert queue.find(mine.id, OTHER) is None
    pid_of(mine)
    theirs = [submit(queue, 600.0, OTHER) for _ in range(2)]
    with pytest.raises(HTTPException, match="2 per client") as refused:
        submit(queue, 0.0, OTHER)
    assert refused.value.status_code == 429
    with pytest.raises(HTTPException, match="3 in total") as refused:
        submit(queue, 0.0, "192.0.2.3")
    assert refused.value.status_code == 503
    assert queue.find(mine.id, ME) is mine  # its result waits for its client
    mine.is_known = True  # the client has fetched it
    assert submit(queue, 0.0, "192.0.2.3")
    assert not any(job.is_over for job in theirs)


def test_a_new_job_replaces_the_oldest_result_of_the_same_client(queue_of):
    queue = queue_of(solver_processes=1, client_jobs=2)
    done = [submit(queue, 0.0) for _ in range(2)]
    for job in done:
        pid_of(job)
    submit(queue, 0.0)
    assert [queue.find(job.id, ME) for job in done] == [None, done[1]]


def test_results_that_nobody_fetches_are_dropped(queue_of):
    queue = queue_of(solver_processes=1, max_jobs=1, result_seconds=0.05)
    pid_of(submit(queue, 0.0))
    time.sleep(0.1)
    assert pid_of(submit(queue, 0.0, OTHER))


def test_clients_take_turns(queue_of):
    queue = queue_of(solver_processes=2)
    flood = [submit(queue, 600.0, OTHER) for _ in range(4)]
    until(lambda: sum(job.state == "running" for job in flood) == 2)
    mine = submit(queue, 0.0)
    flood[0].cancel()
    assert pid_of(mine)
    assert flood[2].state == "waiting" or flood[3].state == "waiting"


def test_a_process_that_dies_fails_its_job_only(queue_of):
    queue = queue_of(solver_processes=1)
    deadly, next_one = submit(queue, tasks.DIE), submit(queue, 0.0)
    with pytest.raises(InputError, match="process died"):
        deadly.result.result(60)
    assert pid_of(next_one)


def test_a_bug_of_a_solver_is_logged_and_not_shown(queue_of, caplog):
    queue = queue_of(solver_processes=1)
    with pytest.raises(InputError, match="see the server log"):
        submit(queue, tasks.FAIL).result.result(60)
    assert "secret" in caplog.text
    assert pid_of(submit(queue, 0.0))


def test_closing_ends_jobs_and_processes(queue_of):
    queue = queue_of(solver_processes=2)
    first = submit(queue, 0.0)
    queue_of.pids.add(pid_of(first))
    jobs = [submit(queue, 600.0) for _ in range(3)]
    until(lambda: jobs[1].seconds > 0)
    queue.close()
    assert [job.state for job in jobs] == 3 * ["cancelled"]
