"""The HTTP API: schemas for its OpenAPI description, then its routes.

The bodies of predictions are not parsed by the schemas: arrays are converted between bytes and
NumPy directly, see `cato.serve.bodies`.
"""

from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field

from cato.serve.bodies import check_response_size, format_for, validate
from cato.serve.service import Serving

router = APIRouter()


class Error(BaseModel):
    """Why a request failed."""

    detail: str = Field(description="Expected value, received value, remedy.")


class ModelSummary(BaseModel):
    """An entry of the list of models."""

    name: str = Field(description="Name used in URLs.")
    version: str = Field(description="Changes with the weights.")
    problem: str
    geometry: Literal["grid", "mesh", "cloud"]
    shape: list[int] = Field(description="Nodes along each axis of the training mesh.")
    inputs: list[str] = Field(description="Names of the input channels.")
    outputs: list[str] = Field(description="Names of the output channels.")


class ModelList(BaseModel):
    """All models."""

    models: list[ModelSummary]


class ModelDescription(ModelSummary):
    """Everything needed to call a model and to interpret its outputs."""

    dimension: int = Field(description="Number of coordinates of a node.")
    periodic: list[bool]
    time: Literal["steady", "rollout", "conditioned"]
    num_steps: int = Field(description="Number of output frames.")
    inputs_shape: list[str | int]
    coords_shape: list[str | int]
    outputs_shape: list[str | int]
    needs_coords: bool = Field(description="Whether every request must contain coordinates.")
    parameters: int
    about: dict[str, Any] = Field(description="Training, benchmark, test errors.")


class Health(BaseModel):
    """State of the service."""

    alive: bool
    ready: bool
    models: int
    waiting: int = Field(description="Predictions in the queue.")


class FlatArray(BaseModel, extra="forbid"):
    """An array as a flat list, last axis fastest."""

    shape: list[int]
    values: list[float]


Array = FlatArray | list[Any]


class PredictBody(BaseModel, extra="forbid"):
    """Omit coordinates on the training mesh, inputs if the model has no input channels."""

    inputs: Array | None = Field(None, description="(samples, mesh axes, channels)")
    coords: Array | None = Field(None, description="The same layout, or without samples")


class Prediction(BaseModel):
    """A JSON response; .npz responses contain the same names."""

    model: str
    version: str
    names: list[str] = Field(description="Names of the output channels.")
    seconds: float = Field(description="Run time of the model for this batch.")
    batch: int = Field(description="Number of samples in the batch.")
    outputs: Array = Field(
        description="(samples, mesh axes, channels); time-dependent problems have frames after "
        "samples."
    )
    verdicts: list[Literal["inside", "outside", "unknown"]] = Field(
        description="For each sample, whether it is inside the range of the training inputs."
    )
    reasons: list[str] = Field(description="For each sample, why it is not inside; else empty.")
    bands: Array | None = Field(
        None,
        description="Half-width of the conformal band, the same for all samples; omitted if the "
        "model has none for this mesh, or if a sample is outside the training range.",
    )


_BINARY = {"schema": {"type": "string", "format": "binary"}}
_PREDICT_SCHEMA = PredictBody.model_json_schema(ref_template="#/components/schemas/{model}")
del _PREDICT_SCHEMA["$defs"]  # `Prediction` brings `FlatArray` into the components
PREDICT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": PredictBody.__doc__,
        "content": {
            "application/json": {"schema": _PREDICT_SCHEMA},
            "application/x-npz": _BINARY,
            "application/octet-stream": _BINARY,
        },
    }
}
NPZ_RESPONSE: dict[str, Any] = {"content": {"application/x-npz": _BINARY}}


def errors(**reasons: str) -> dict[int | str, dict[str, Any]]:
    """Documented error responses: `errors(_404="unknown model")`."""
    return {
        int(status[1:]): {"model": Error, "description": reason}
        for status, reason in reasons.items()
    }


@router.get("/models", response_model=ModelList, tags=["models"])
async def list_models(service: Serving) -> dict[str, Any]:
    """List all models."""
    return {"models": [model.describe() for model in service.models.values()]}


@router.get(
    "/models/{name}",
    response_model=ModelDescription,
    responses=errors(_404="unknown model"),
    tags=["models"],
)
async def describe_model(name: str, service: Serving) -> dict[str, Any]:
    """Describe a model: channels, shapes, time, errors."""
    return service.model(name).describe()


@router.post(
    "/models/{name}/predict",
    response_class=Response,
    responses={
        200: {"model": Prediction, **NPZ_RESPONSE},
        **errors(
            _400="the body cannot be read",
            _401="the token is missing or wrong",
            _404="unknown model",
            _408="the body did not arrive in time",
            _413="too many bytes, samples or nodes",
            _415="unknown content type",
            _422="the arrays do not fit the model",
            _429="too much of this client in progress; try again after Retry-After seconds",
            _503="too much in progress; try again after Retry-After seconds",
            _504="not solved in time",
        ),
    },
    openapi_extra=PREDICT_BODY,
    tags=["models"],
)
async def predict(name: str, request: Request, service: Serving) -> Response:
    """Solve one or more samples; the response has the format of the request."""
    model = service.model(name)
    form = format_for(request.headers.get("content-type", ""))
    settings = service.settings
    is_json = form.media_type == "application/json"
    max_bytes = settings.max_json_bytes if is_json else settings.max_body_bytes
    content = await service.read_body(request)
    async with service.admit(request):
        with service.batcher.arriving():
            body = await service.run_in_executor(form.decode, content, max_bytes)
            arrays = await service.run_in_executor(validate, body.arrays, model, settings)
            check_response_size(arrays, form, settings)
        result = await service.predict(arrays, request)
        content = await service.run_in_executor(form.encode, arrays, result, body)
    return Response(content, media_type=form.media_type)


@router.get(
    "/health",
    response_model=Health,
    responses={503: {"model": Health, "description": "alive, but not ready"}},
    tags=["operation"],
)
async def health(service: Serving, response: Response) -> dict[str, Any]:
    """Whether the service is alive (it responds) and ready (it accepts predictions)."""
    is_ready = service.batcher.is_alive
    response.status_code = 200 if is_ready else 503
    return {
        "alive": True,
        "ready": is_ready,
        "models": len(service.models),
        "waiting": service.batcher.num_waiting,
    }


@router.get("/metrics", response_class=PlainTextResponse, tags=["operation"])
async def metrics(service: Serving) -> Response:
    """Metrics in the text format of Prometheus."""
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)
