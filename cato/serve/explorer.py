"""The explorer: the page that `cato serve` opens, and the addresses it asks.

The page (static/explorer) edits the input of a benchmark; here its values become the arrays of a
prediction, a random draw, or a job for the true solver. Bodies are packed by `wire`. A benchmark is
shown if some model that is served has learnt its problem. None of these addresses is part of the
documented API: they change with the page.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import FileResponse
from starlette.requests import ClientDisconnect

from cato.benchmarks import BENCHMARKS, Editor, ModelInputs, editor_for
from cato.errors import InputError
from cato.serve.batching import Answer, Question
from cato.serve.jobs import SolverJob, SolverJobs
from cato.serve.models import ServedModel
from cato.serve.service import CLIENT_GONE, Service, service_of
from cato.serve.wire import pack, unpack

PAGE = Path(__file__).parent / "static" / "explorer"
MEDIA_TYPE = "application/octet-stream"
NUM_REMEMBERED = 16
"""Inputs kept that a solver had to compute."""

router = APIRouter(prefix="/explorer", include_in_schema=False)


@dataclass
class Exploration:
    """The state of the explorer, `app.state.exploration`.

    Attributes:
        models: Models that have an editor.
        editors: Their editors, by the same names.
        jobs: Solver jobs.
        computed: Inputs that a solver computed, newest last.
    """

    models: dict[str, ServedModel]
    editors: dict[str, Editor]
    jobs: SolverJobs
    computed: OrderedDict[tuple[str, bytes], ModelInputs] = field(default_factory=OrderedDict)

    def find(self, name: str) -> tuple[ServedModel, Editor]:
        """The model of that name and its editor."""
        if name not in self.models:
            raise HTTPException(404, f"no model {name[:80]!r} can be explored here")
        return self.models[name], self.editors[name]

    def job(self, job_id: str) -> SolverJob:
        """The job of that id."""
        job = self.jobs.find(job_id)
        if job is None:
            raise HTTPException(404, "this solver job is not known here any more; start another")
        return job


def exploration_over(models: Mapping[str, ServedModel]) -> Exploration:
    """What of some models can be explored; whoever asks for it closes its jobs."""
    editors = {
        name: editor
        for name, model in models.items()
        if (editor := editor_for(model.problem, model.about.get("scale"))) is not None
    }
    return Exploration({name: models[name] for name in editors}, editors, SolverJobs())


def exploration_of(request: Request) -> Exploration:
    """The explorer of the application that a request came to."""
    exploration: Exploration = request.app.state.exploration
    return exploration


Serving = Annotated[Service, Depends(service_of)]
Exploring = Annotated[Exploration, Depends(exploration_of)]


@router.get("/")
@router.get("/{name}")
async def page_file(name: str = "index.html") -> FileResponse:
    """A file of the page. Browsers ask again each time, as the page changes with the library."""
    if name not in {path.name for path in PAGE.iterdir()}:
        raise HTTPException(404, f"the explorer has no file {name[:80]!r}")
    return FileResponse(PAGE / name, headers={"Cache-Control": "no-cache"})


@router.get("/api/benchmarks")
async def list_benchmarks(exploration: Exploring) -> dict[str, Any]:
    """What can be explored, in the order of the benchmarks."""
    found: dict[str, dict[str, Any]] = {}
    for name, editor in exploration.editors.items():
        model = exploration.models[name]
        shown = {
            "name": name,
            "model": model.about.get("model", type(model.surrogate.model).__name__),
            "scale": model.about.get("scale"),
            "testError": (model.about.get("test_error") or {}).get("relative_l2"),
            "editor": editor.describe(),
        }
        benchmark = editor.benchmark
        entry = {"name": benchmark.name, "title": benchmark.title, "models": []}
        found.setdefault(benchmark.name, entry | {"about": benchmark.description})
        found[benchmark.name]["models"].append(shown)
    return {"benchmarks": [found[name] for name in BENCHMARKS if name in found]}


@router.get("/api/models/{name}/draw")
async def draw(
    name: str, exploration: Exploring, service: Serving, seed: int | None = None
) -> Response:
    """Values of a random input; of the plainest one without a seed."""
    _, editor = exploration.find(name)
    if seed is not None and not 0 <= seed < 2**53:
        raise InputError(f"the seed must be from 0 to 2^53; got {seed}")

    def drawn() -> np.ndarray:
        return editor.neutral() if seed is None else editor.draw(np.random.default_rng(seed))

    return Response(pack({}, {"values": await service.beside(drawn)}), media_type=MEDIA_TYPE)


@router.post("/api/models/{name}/predict")
async def predict(
    name: str, request: Request, exploration: Exploring, service: Serving
) -> Response:
    """The model's answer for an input, with the nodes and their place in the chart."""
    model, editor = exploration.find(name)
    with service.admission():
        values = editor.check(await _values_of(request, service))
        try:
            async with asyncio.timeout(service.settings.time_limit):
                inputs = await _model_inputs(exploration, service, editor, values)
                answer = await service.ask(_question(model, inputs), request)
                body = await service.beside(_written, model, editor, inputs, answer)
        except TimeoutError:
            limit = service.settings.time_limit
            raise HTTPException(504, f"not solved within {limit:g} s; ask again later") from None
    return Response(body, media_type=MEDIA_TYPE)


@router.post("/api/models/{name}/solve")
async def start_solver(
    name: str, request: Request, exploration: Exploring, service: Serving
) -> dict[str, Any]:
    """Start the true solver for an input."""
    _, editor = exploration.find(name)
    with service.admission():
        values = editor.check(await _values_of(request, service))
    return _state(exploration.jobs.submit(editor, "solve", values))


@router.get("/api/jobs/{job_id}")
async def job_state(job_id: str, exploration: Exploring) -> dict[str, Any]:
    """How far a job is."""
    return _state(exploration.job(job_id))


@router.get("/api/jobs/{job_id}/result")
async def job_result(job_id: str, exploration: Exploring, service: Serving) -> Response:
    """The true solution, once the job is done."""
    job = exploration.job(job_id)
    if job.state != "done":
        raise HTTPException(409, f"the solver job is {job.state} and has no result")
    reply = job.finished.result()
    body = await service.beside(pack, reply.facts, reply.arrays)
    return Response(body, media_type=MEDIA_TYPE)


@router.delete("/api/jobs/{job_id}")
async def cancel_job(job_id: str, exploration: Exploring) -> dict[str, Any]:
    """End a job."""
    job = exploration.job(job_id)
    exploration.jobs.cancel(job)
    return _state(job)


def _state(job: SolverJob) -> dict[str, Any]:
    return {"id": job.id, "state": job.state, "seconds": job.seconds, "message": job.message}


async def _values_of(request: Request, service: Service) -> np.ndarray:
    """The values in a body. The media type keeps pages of other sites from sending one."""
    if request.headers.get("content-type") != MEDIA_TYPE:
        raise HTTPException(415, f"the content type must be {MEDIA_TYPE}")
    limit = service.settings.time_limit
    try:
        async with asyncio.timeout(limit):
            arrays = unpack(await request.body()).arrays
    except ClientDisconnect:
        raise HTTPException(CLIENT_GONE, "the client has gone") from None
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {limit:g} s") from None
    if "values" not in arrays:
        raise InputError("the body has no 'values'")
    return arrays["values"]


async def _model_inputs(
    exploration: Exploration, service: Service, editor: Editor, values: np.ndarray
) -> ModelInputs:
    """What the model takes, computed by a solver process where that takes long."""
    if not editor.needs_solver:
        return await service.beside(editor.model_inputs, values)
    key = (repr((editor.benchmark.name, editor.parameters)), values.tobytes())
    if key not in exploration.computed:
        job = exploration.jobs.submit(editor, "inputs", values)
        try:
            reply = await asyncio.wrap_future(job.finished)
        finally:
            exploration.jobs.cancel(job)  # if nobody waits any more; else it is over
        # Copies: torch wants arrays that it could write to.
        arrays = {name: array.copy() for name, array in reply.arrays.items()}
        exploration.computed[key] = ModelInputs(**arrays)
        if len(exploration.computed) > NUM_REMEMBERED:
            exploration.computed.popitem(last=False)
    return exploration.computed[key]


def _question(model: ServedModel, given: ModelInputs) -> Question:
    """One sample; the nodes are left out where the model knows them."""
    coords = None if model.has_coords else given.coords[None]
    return Question(model, given.inputs[None], coords)


def _written(model: ServedModel, editor: Editor, given: ModelInputs, answer: Answer) -> bytes:
    arrays = {"outputs": answer.outputs[0], "coords": given.coords}
    if given.inputs.size:
        arrays["inputs"] = given.inputs
    if (chart := _charted(model, given.coords)) is not None:
        arrays["chart"] = chart
    if (triangles := editor.triangles()) is not None:
        arrays["triangles"] = triangles
    return pack({"seconds": answer.seconds}, arrays)


def _charted(model: ServedModel, coords: np.ndarray) -> np.ndarray | None:
    """Where the model's chart has the nodes, (*mesh, D); None for models without one."""
    nodes = torch.from_numpy(coords).flatten(0, -2)[None].to(model.surrogate.device)
    zeta = model.surrogate.charted(nodes)
    return None if zeta is None else zeta.reshape(coords.shape).cpu().numpy()
