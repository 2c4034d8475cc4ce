"""The addresses that the explorer page asks, in process."""

import asyncio
import re
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from clients import concurrently, endless_body
from explored import build_explored, pack, unpack
from fastapi.testclient import TestClient

from cato.benchmarks import BENCHMARKS
from cato.data.training_range import load_range
from cato.runs.folder import open_run
from cato.serve.app import create_app
from cato.serve.explorer import PAGE
from cato.serve.settings import ServeSettings

API = "/explorer/api"
BINARY = {"content-type": "application/octet-stream"}
STEADY = ("darcy", "airfoil", "pipe", "elasticity")


@pytest.fixture(scope="module")
def models():
    return {name: build_explored(name) for name in BENCHMARKS}


@pytest.fixture(scope="module")
def client(models):
    with TestClient(
        create_app(models), raise_server_exceptions=False, base_url="http://localhost"
    ) as client:
        yield client


def drawn(client, name, seed=1):
    return unpack(client.get(f"{API}/models/{name}/draw?seed={seed}").content)[1]["values"]


def post(client, path, values):
    return client.post(f"{API}/{path}", content=pack(values=values), headers=BINARY)


def test_a_benchmark_is_shown_if_a_model_of_it_is_served(client, models):
    listed = client.get(f"{API}/benchmarks").json()["benchmarks"]
    assert [entry["name"] for entry in listed] == list(BENCHMARKS)
    some = {"first": models["pipe"], "second": models["pipe"]}
    with TestClient(create_app(some), base_url="http://localhost") as other:
        (entry,) = other.get(f"{API}/benchmarks").json()["benchmarks"]
        assert [model["name"] for model in entry["models"]] == ["first", "second"]
        assert other.get(f"{API}/models/darcy/draw").status_code == 404


@pytest.mark.parametrize("name", STEADY)
def test_a_prediction_is_the_model_on_the_arrays_of_the_values(client, models, name):
    values = drawn(client, name)
    answer = post(client, f"models/{name}/predict", values)
    assert answer.status_code == 200, answer.text
    facts, arrays = unpack(answer.content)
    model, editor = models[name], client.app.state.exploration.editors[name]
    given = editor.model_inputs(values)
    expected = model.surrogate.predict(given.inputs[None], given.coords[None])[0]
    np.testing.assert_allclose(arrays["outputs"], expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(arrays["coords"], given.coords)
    seen = model.surrogate.normaliser.encode_coords(torch.from_numpy(given.coords))
    with torch.no_grad():
        chart = model.surrogate.model.chart(seen.flatten(0, -2)[None])[0]
    np.testing.assert_allclose(arrays["chart"], chart.reshape(given.coords.shape), atol=1e-6)
    assert facts["seconds"] > 0
    assert facts["verdict"] == "unknown"  # of a model without a training range
    assert facts["inputsSeconds"] is None


def test_a_prediction_says_whether_its_input_is_inside(models):
    run = open_run("darcy")
    known = load_range(run.source, run.problem, run.id)
    small = replace(build_explored("darcy", "small"), training_range=known)
    with TestClient(create_app({"darcy": small}), base_url="http://localhost") as client:
        values = unpack(client.get(f"{API}/models/darcy/draw").content)[1]["values"]
        facts, _ = unpack(post(client, "models/darcy/predict", values).content)
        assert (facts["verdict"], facts["reason"]) == ("inside", "")
        facts, _ = unpack(post(client, "models/darcy/predict", np.zeros_like(values)).content)
        assert facts["verdict"] == "outside"
        assert "permeability a" in facts["reason"]


def test_frames_come_all_at_once(client):
    arrays = unpack(post(client, "models/plasticity/predict", np.full(8, 1.5)).content)[1]
    assert arrays["outputs"].shape == (20, 21, 7, 4)
    np.testing.assert_array_equal(arrays["inputs"], np.full((21, 7, 1), 1.5, np.float32))


def test_vortices_are_rolled_out_from_ten_frames_of_the_solver(client):
    values = np.array([1.0, 1.0, 4.0])
    facts, arrays = unpack(post(client, "models/navier_stokes/predict", values).content)
    assert facts["inputsSeconds"] > 0
    parameters = BENCHMARKS["navier_stokes"].parameters("smoke")
    sample = BENCHMARKS["navier_stokes"].sample(np.random.default_rng(4), parameters)
    np.testing.assert_array_equal(arrays["inputs"], sample.inputs)
    assert arrays["outputs"].shape == sample.targets.shape
    jobs = client.app.state.exploration.jobs
    submit, jobs.submit = jobs.submit, None  # the second time no solver is needed
    try:
        again = post(client, "models/navier_stokes/predict", values)
    finally:
        jobs.submit = submit
    np.testing.assert_array_equal(unpack(again.content)[1]["inputs"], sample.inputs)
    assert unpack(again.content)[0]["inputsSeconds"] == facts["inputsSeconds"]


def test_the_solver_is_asked_and_answers_what_the_benchmark_has(client):
    values = drawn(client, "darcy", seed=6)
    job = post(client, "models/darcy/solve", values).json()
    assert job["state"] in ("waiting", "running")
    deadline = time.monotonic() + 60
    while job["state"] in ("waiting", "running"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
        job = client.get(f"{API}/jobs/{job['id']}").json()
    facts, arrays = unpack(client.get(f"{API}/jobs/{job['id']}/result").content)
    parameters = BENCHMARKS["darcy"].parameters("smoke")
    sample = BENCHMARKS["darcy"].sample(np.random.default_rng(6), parameters)
    np.testing.assert_array_equal(arrays["targets"], sample.targets)
    assert facts["seconds"] > 0


def test_a_job_can_be_cancelled(client):
    job = post(client, "models/airfoil/solve", np.zeros(7)).json()
    assert client.delete(f"{API}/jobs/{job['id']}").json()["state"] == "cancelled"
    answer = client.get(f"{API}/jobs/{job['id']}/result")
    assert answer.status_code == 409
    assert "cancelled" in answer.json()["detail"]


def test_refusals_are_one_line(client):
    full = pack(values=np.zeros(7))
    refused = [
        (404, client.get(f"{API}/models/nobody/draw")),
        (404, client.get(f"{API}/jobs/none")),
        (404, client.delete(f"{API}/jobs/none")),
        (422, client.get(f"{API}/models/darcy/draw?seed=-1")),
        (422, client.get(f"{API}/models/darcy/draw?seed=x")),
        (415, client.post(f"{API}/models/airfoil/predict", content=full)),
        (422, client.post(f"{API}/models/airfoil/predict", content=b"abc", headers=BINARY)),
        (422, client.post(f"{API}/models/darcy/solve", content=full, headers=BINARY)),
        (422, client.post(f"{API}/models/airfoil/solve", content=pack(), headers=BINARY)),
        (422, post(client, "models/airfoil/predict", np.full(7, np.nan))),
    ]
    for status, answer in refused:
        assert answer.status_code == status, answer.text
        assert "\n" not in answer.json()["detail"]


def test_time_is_limited_and_the_solver_ended(models):
    """Ten frames of Navier–Stokes take their process longer to start than this limit."""
    app = create_app({"vortices": models["navier_stokes"]}, ServeSettings(time_limit=0.05))
    with TestClient(app, raise_server_exceptions=False, base_url="http://localhost") as client:
        late = post(client, "models/vortices/predict", np.array([1.0, 1.0, 9.0]))
        (job,) = app.state.exploration.jobs._jobs.values()
        assert (late.status_code, job.state) == (504, "cancelled")


def test_a_body_that_never_ends_is_given_up(models):
    app = create_app({"darcy": models["darcy"]}, ServeSettings(body_seconds=0.2, max_requests=1))

    async def work(client):
        ask = {"url": f"{API}/models/darcy/predict", "headers": BINARY}
        slow = asyncio.gather(*(client.post(content=endless_body(), **ask) for _ in range(2)))
        values = pack(values=app.state.exploration.editors["darcy"].first())
        quick = await client.post(content=values, **ask)  # the slow ones take no slot
        return quick.status_code, [answer.status_code for answer in await slow]

    assert concurrently(app, work) == (200, [408, 408])


def test_the_page_is_at_home_and_whole(client, models):
    page = client.get("/")
    assert page.status_code == 200
    assert page.url.path == "/explorer/"
    assert client.get("/explorer").url.path == "/explorer/"
    files = [path.name for path in PAGE.iterdir()]
    for name in files:
        assert client.get(f"/explorer/{name}").status_code == 200
    for path in PAGE.iterdir():
        text = path.read_text(encoding="utf-8")
        for imported in re.findall(r'from "\./([\w.]+)"|(?:src|href)="([\w.]+)"', text):
            assert "".join(imported) in files
        # No address of another host, but for the name of the SVG format.
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|src=\"//", text), path.name


def test_own_data_have_the_api_only():
    with TestClient(create_app({}), base_url="http://localhost") as client:
        assert client.get("/").url.path == "/docs"
        assert client.get(f"{API}/benchmarks").json() == {"benchmarks": []}
