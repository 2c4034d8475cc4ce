"""The explorer: the page that `cato serve` opens, and its routes.

The page (static/explorer) edits the input of a benchmark. The routes turn its values into a
prediction, draw random values, and start the reference solver. Bodies are in safetensors format. A
benchmark is shown if a served model was trained on it. These routes are not part of the documented
API: they change with the page.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import FileResponse
from safetensors.numpy import save

from cato.benchmarks import BENCHMARKS, editor_for
from cato.benchmarks.editor import Editor, ModelInputs
from cato.errors import InputError
from cato.files import to_json
from cato.inference.evaluate import errors_by_field, has_learnt
from cato.serve.batching import PredictRequest, PredictResult
from cato.serve.bodies import decode_safetensors
from cato.serve.clients import client_of_scope
from cato.serve.jobs import SolverJob, SolverJobs
from cato.serve.models import ServedModel
from cato.serve.service import Service, Serving, unless_gone
from cato.serve.settings import ServeSettings

PAGE = Path(__file__).parent / "static" / "explorer"
MEDIA_TYPE = "application/octet-stream"
CACHE_SIZE = 16  # Number of cached inputs that a solver computed.

router = APIRouter(prefix="/explorer", include_in_schema=False)


class ComputedInputs(NamedTuple):
    """Inputs of a model."""

    inputs: ModelInputs
    seconds: float | None = None  # time of the solver for them, if it took part


class Exploration:
    """State of the explorer, `app.state.exploration`; close its jobs at the end."""

    def __init__(self, models: Mapping[str, ServedModel], settings: ServeSettings) -> None:
        self.models, self.jobs = models, SolverJobs(settings)
        self.editors = {  # of the models that were trained on a benchmark
            name: editor
            for name, model in models.items()
            if (editor := editor_for(model.problem, model.about.get("scale"))) is not None
        }
        # Cached inputs that a solver computed, newest last.
        self.inputs: OrderedDict[tuple[str, bytes], ComputedInputs] = OrderedDict()

    def find(self, name: str) -> tuple[ServedModel, Editor]:
        """The model with this name, and its editor."""
        if name not in self.editors:
            raise HTTPException(404, f"the explorer has no model {name[:80]!r}")
        return self.models[name], self.editors[name]


async def _exploration(request: Request) -> Exploration:
    exploration: Exploration = request.app.state.exploration
    return exploration


Exploring = Annotated[Exploration, Depends(_exploration)]


async def _job(job_id: str, request: Request, exploration: Exploring) -> SolverJob:
    job = exploration.jobs.find(job_id, client_of_scope(request.scope))
    if job is None:
        raise HTTPException(404, "this solver job no longer exists; start a new one")
    return job


Job = Annotated[SolverJob, Depends(_job)]


@router.get("/")
@router.get("/{name}")
async def page_file(name: str = "index.html") -> FileResponse:
    """A file of the page; not cached, because the page changes with the library."""
    if name not in {path.name for path in PAGE.iterdir()}:
        raise HTTPException(404, f"the explorer has no file {name[:80]!r}")
    return FileResponse(PAGE / name, headers={"Cache-Control": "no-cache"})


@router.get("/api/benchmarks")
async def list_benchmarks(exploration: Exploring) -> dict[str, Any]:
    """Benchmarks with their models, in the order of the benchmarks."""
    found: dict[str, dict[str, Any]] = {}
    for name, editor in exploration.editors.items():
        benchmark, model = editor.benchmark, exploration.models[name]
        entry = {
            "name": benchmark.name,
            "title": benchmark.title,
            "about": benchmark.description,
            "models": [],
        }
        found.setdefault(benchmark.name, entry)["models"].append(
            {
                "name": name,
                "model": model.about.get("model", type(model.surrogate.model).__name__),
                "scale": model.about.get("scale"),
                "testErrors": _test_errors(model),
                "falseAlarms": (model.about.get("training_range") or {}).get("false_alarms"),
                "editor": editor.describe(),
            }
        )
    return {"benchmarks": [found[name] for name in BENCHMARKS if name in found]}


def _test_errors(model: ServedModel) -> list[dict[str, Any]]:
    """Errors by field as the page shows them; none if the model was not evaluated."""
    figures = model.about.get("test_error")
    return [
        {
            "field": field,
            "error": found["relative_l2"],
            "mean": found["mean_predictor"],
            "median": found.get("median"),
            "worst": found.get("worst"),
            "hasLearnt": has_learnt(found),
        }
        for field, found in (errors_by_field(figures) if figures else {}).items()
    ]


@router.get("/api/models/{name}/draw")
async def draw(
    name: str,
    request: Request,
    exploration: Exploring,
    service: Serving,
    seed: int | None = None,
) -> Response:
    """Values of a random input; without a seed those of the first input."""
    _, editor = exploration.find(name)
    if seed is not None and not 0 <= seed < 2**53:
        raise InputError(f"the seed must be from 0 to 2^53; got {seed}")

    def draw_values() -> np.ndarray:
        return editor.first() if seed is None else editor.draw(np.random.default_rng(seed))

    async with service.admit(request):
        values = await service.run_in_executor(draw_values)
    return Response(_pack({}, {"values": values}), media_type=MEDIA_TYPE)


@router.post("/api/models/{name}/predict")
async def predict(
    name: str, request: Request, exploration: Exploring, service: Serving
) -> Response:
    """The prediction for an input, with the nodes and their chart coordinates."""
    model, editor = exploration.find(name)
    values = _values(request, await service.read_body(request), editor)
    async with service.admit(request):
        inputs, seconds = await _model_inputs(exploration, service, editor, values, request)
        coords = None if model.has_coords else inputs.coords[None]
        arrays = PredictRequest(model, inputs.inputs[None], coords)
        result = await service.predict(arrays, request)
        verdict = (await service.run_in_executor(model.verdicts, arrays.inputs, arrays.coords))[0]
        facts = {
            "seconds": result.seconds,
            "inputsSeconds": seconds,
            **verdict.to_dict(),
        }
        body = await service.run_in_executor(_encode, facts, model, editor, inputs, result)
    return Response(body, media_type=MEDIA_TYPE)


@router.post("/api/models/{name}/solve")
async def start_solver(
    name: str, request: Request, exploration: Exploring, service: Serving
) -> dict[str, Any]:
    """Start the reference solver for an input."""
    _, editor = exploration.find(name)
    values = _values(request, await service.read_body(request), editor)
    client = client_of_scope(request.scope)
    return _state(exploration.jobs.submit(client, editor, "solve", values))


@router.get("/api/jobs/{job_id}")
async def job_state(job: Job) -> dict[str, Any]:
    """State of a job."""
    job.is_known = job.state in ("failed", "cancelled")
    return _state(job)


@router.get("/api/jobs/{job_id}/result")
async def job_result(job: Job, service: Serving) -> Response:
    """The reference solution, once the job is done."""
    if job.state != "done":
        raise HTTPException(409, f"the solver job is {job.state} and has no result")
    solution = job.result.result()
    facts = {"seconds": solution.seconds, "compiled": solution.is_compiled}
    body = await service.run_in_executor(_pack, facts, solution.arrays)
    job.is_known = True
    return Response(body, media_type=MEDIA_TYPE)


@router.delete("/api/jobs/{job_id}")
async def cancel_job(job: Job) -> dict[str, Any]:
    """Cancel a job."""
    await asyncio.to_thread(job.cancel)
    job.is_known = True
    return _state(job)


def _state(job: SolverJob) -> dict[str, Any]:
    return {"id": job.id, "state": job.state, "seconds": job.seconds, "message": job.message}


def _values(request: Request, body: bytes, editor: Editor) -> np.ndarray:
    """Validated values of a body. The media type keeps other sites' pages from sending one."""
    if request.headers.get("content-type") != MEDIA_TYPE:
        raise HTTPException(415, f"the content type must be {MEDIA_TYPE}")
    return editor.check(decode_safetensors(body))


async def _model_inputs(
    exploration: Exploration,
    service: Service,
    editor: Editor,
    values: np.ndarray,
    request: Request,
) -> ComputedInputs:
    """Inputs of the model, computed by a solver process if that takes long."""
    if not editor.needs_solver:
        return ComputedInputs(await service.run_in_executor(editor.model_inputs, values))
    cache = exploration.inputs
    key = repr((editor.benchmark.name, editor.parameters)), values.tobytes()
    if key not in cache:
        client = client_of_scope(request.scope)
        job = exploration.jobs.submit(client, editor, "inputs", values)
        try:
            solution = await unless_gone(request, job.result)
        finally:
            job.is_known = True
            if not job.is_over:
                await asyncio.to_thread(job.cancel)
        cache[key] = ComputedInputs(ModelInputs(**solution.arrays), solution.seconds)
        if len(cache) > CACHE_SIZE:
            cache.popitem(last=False)
    return cache[key]


def _encode(
    facts: dict[str, Any],
    model: ServedModel,
    editor: Editor,
    inputs: ModelInputs,
    result: PredictResult,
) -> bytes:
    arrays = {"outputs": result.outputs[0], "coords": inputs.coords}
    if inputs.inputs.size:
        arrays["inputs"] = inputs.inputs
    nodes = torch.from_numpy(inputs.coords).flatten(0, -2)[None].to(model.surrogate.device)
    if (chart := model.surrogate.charted(nodes)) is not None:
        arrays["chart"] = chart.reshape(inputs.coords.shape).cpu().numpy()
    if (triangles := editor.triangles()) is not None:
        arrays["triangles"] = triangles
    return _pack(facts, arrays)


def _pack(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Facts (JSON-ready, stored in the metadata) and arrays in safetensors format."""
    metadata = {name: to_json(value) for name, value in facts.items()}
    # safetensors writes the memory as it is, even of transposed arrays.
    return save({name: np.asarray(array, order="C") for name, array in arrays.items()}, metadata)
