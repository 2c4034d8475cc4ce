"""Requests that are solved together are answered as if each had been alone."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.serve.batching import Batcher, PredictRequest
from cato.serve.settings import ServeSettings


@contextmanager
def running(**limits):
    batcher = Batcher(ServeSettings(**limits))
    try:
        yield batcher
    finally:
        batcher.close()


def ask(model, rng, num_samples=1, shape=None, with_coords=None):
    problem = model.problem
    shape = shape or problem.shape
    if with_coords is None:
        with_coords = not model.has_coords or shape != problem.shape
    inputs = rng.standard_normal((num_samples, *shape, problem.num_inputs), np.float32)
    coords = rng.random((num_samples, *shape, problem.dimension), np.float32)
    return PredictRequest(model, inputs, coords if with_coords else None)


def alone(question):
    return question.model.surrogate.predict(question.inputs, question.coords)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["grid", "other", "mesh", "cloud", "rollout"]),
            st.integers(1, 7),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 8),
    st.integers(0, 2**31),
)
def test_together_equals_alone(models, asked, max_batch, seed):
    rng = np.random.default_rng(seed)
    questions = [
        ask(models[name], rng, size, (7,) if other and name == "cloud" else None, other or None)
        for name, size, other in asked
    ]
    with running(max_batch=max_batch) as batcher, ThreadPoolExecutor(6) as clients:
        with batcher.arriving():
            jobs = list(clients.map(batcher.submit, questions))
        for question, job in zip(questions, jobs, strict=True):
            answer = job.result.result(20)
            expected = alone(question)
            assert answer.outputs.shape == expected.shape
            np.testing.assert_allclose(answer.outputs, expected, rtol=1e-4, atol=1e-5)
            assert answer.batch <= max(max_batch, len(question.inputs))


def test_requests_on_their_way_are_waited_for(models):
    rng = np.random.default_rng(0)
    with running(batch_seconds=20.0) as batcher:
        with batcher.arriving():
            first = batcher.submit(ask(models["grid"], rng))
            time.sleep(0.05)
            assert not first.result.done()
            second = batcher.submit(ask(models["grid"], rng, 2))
        assert first.result.result(10).batch == second.result.result(10).batch == 3


def test_a_lone_request_does_not_wait(models):
    with running(batch_seconds=20.0) as batcher:
        job = batcher.submit(ask(models["grid"], np.random.default_rng(0)))
        assert job.result.result(10).batch == 1


def test_a_full_batch_does_not_wait(models):
    rng = np.random.default_rng(0)
    with running(batch_seconds=20.0, max_batch=2) as batcher, batcher.arriving():
        jobs = [batcher.submit(ask(models["grid"], rng)) for _ in range(2)]
        assert [job.result.result(10).batch for job in jobs] == [2, 2]


def test_a_forward_has_no_more_nodes_than_the_largest_sample(models, gate):
    gate.open.set()
    rng = np.random.default_rng(0)
    with running(max_nodes=65, max_batch=16) as batcher:  # 30 nodes each: two at a time
        job = batcher.submit(ask(models["grid"], rng, 5))
        np.testing.assert_allclose(
            job.result.result(10).outputs, alone(job.request), rtol=1e-4, atol=1e-5
        )
    assert gate.sizes[:3] == [2, 2, 1]


def test_the_oldest_is_next_whatever_model_it_is_for(models, gate):
    rng = np.random.default_rng(0)
    order = []
    with running(max_batch=2) as batcher:
        blocker = batcher.submit(ask(models["grid"], rng))
        assert gate.entered.wait(10)
        names = ["cloud", "grid", "cloud", "grid", "grid", "cloud"]
        jobs = [batcher.submit(ask(models[name], rng)) for name in names]
        for index, job in enumerate(jobs):
            job.result.add_done_callback(lambda _, index=index: order.append(index))
        gate.open.set()
        assert blocker.result.result(10).batch == 1
        for job in jobs:
            job.result.result(10)
    assert order == [0, 2, 1, 3, 4, 5]


def test_abandoned_work_is_dropped(models, gate):
    rng = np.random.default_rng(0)
    with running(max_batch=2) as batcher:
        running_one = batcher.submit(ask(models["grid"], rng, 6))
        assert gate.entered.wait(10)
        waiting_one = batcher.submit(ask(models["grid"], rng))
        for job in (running_one, waiting_one):
            batcher.cancel(job)
        assert batcher.num_waiting == 0
        last = batcher.submit(ask(models["grid"], rng))
        gate.open.set()
        assert last.result.result(10).batch == 1
    assert gate.sizes == [2, 1], "one slice of the six samples, then the last request"


def test_a_failure_is_not_shared(models):
    rng = np.random.default_rng(0)
    surrogate = models["grid"].surrogate
    predict = surrogate.predict

    def picky(inputs, coords=None, batch_size=16):
        if (inputs > 50).any():
            raise InputError("too hot")
        return predict(inputs, coords, batch_size)

    surrogate.predict = picky
    good, bad = ask(models["grid"], rng), ask(models["grid"], rng)
    bad.inputs[0, 3, 3, 0] = 99
    with running(batch_seconds=20.0) as batcher:
        with batcher.arriving():
            jobs = [batcher.submit(question) for question in (good, bad, good)]
        with pytest.raises(InputError, match="too hot"):
            jobs[1].result.result(10)
        for job in (jobs[0], jobs[2]):
            np.testing.assert_allclose(job.result.result(10).outputs, alone(good), rtol=1e-4)


def test_a_mesh_the_model_cannot_take_is_the_clients_error_and_a_bug_is_ours(models):
    rng = np.random.default_rng(0)

    def fail(inputs, coords=None, batch_size=16):
        raise RuntimeError("sizes of tensors must match")

    models["grid"].surrogate.predict = fail
    with running() as batcher:
        other = batcher.submit(ask(models["grid"], rng, shape=(4, 4)))
        with pytest.raises(InputError, match=r"\(4, 4\) nodes.*trained on \(6, 5\)"):
            other.result.result(10)
        with pytest.raises(RuntimeError, match="must match"):
            batcher.submit(ask(models["grid"], rng)).result.result(10)
        assert batcher.is_alive


def test_outputs_that_are_not_finite_are_refused_for_their_request_only(models):
    rng = np.random.default_rng(0)
    surrogate = models["grid"].surrogate
    predict = surrogate.predict

    def burst(inputs, coords=None, batch_size=16):
        outputs = predict(inputs, coords, batch_size)
        return np.where((inputs > 50).any((1, 2, 3), keepdims=True), np.inf, outputs)

    surrogate.predict = burst
    good, bad = ask(models["grid"], rng), ask(models["grid"], rng)
    bad.inputs[0, 0, 0, 0] = 99
    with running(batch_seconds=20.0) as batcher:
        with batcher.arriving():
            jobs = [batcher.submit(good), batcher.submit(bad)]
        assert jobs[0].result.result(10).batch == 2
        with pytest.raises(InputError, match="not finite"):
            jobs[1].result.result(10)


def test_closing_answers_what_was_asked(models):
    rng = np.random.default_rng(0)
    with ExitStack() as stack:
        batcher = stack.enter_context(running(max_batch=1))
        jobs = [batcher.submit(ask(models["rollout"], rng)) for _ in range(5)]
    assert all(job.result.done() for job in jobs)
    assert not batcher.is_alive


def test_clients_take_turns(models, gate):
    """The second request of a client comes after the first of every other."""
    rng = np.random.default_rng(0)
    order = []
    with running(max_batch=1) as batcher:
        blocker = batcher.submit(ask(models["grid"], rng), "blocker")
        assert gate.entered.wait(10)
        clients = ["flood", "flood", "flood", "honest", "other", "honest"]
        jobs = [batcher.submit(ask(models["grid"], rng), client) for client in clients]
        for index, job in enumerate(jobs):
            job.result.add_done_callback(lambda _, index=index: order.append(index))
        gate.open.set()
        for job in (blocker, *jobs):
            job.result.result(10)
    assert order == [0, 3, 4, 1, 5, 2]
