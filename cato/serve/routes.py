"""Routes of the HTTP API: models, predictions, health, metrics."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from cato.serve import schemas
from cato.serve.batching import PredictRequest
from cato.serve.codecs import Body, Format, format_for
from cato.serve.models import ServedModel
from cato.serve.schemas import errors
from cato.serve.service import Serving
from cato.serve.settings import ServeSettings
from cato.serve.validation import validate

router = APIRouter()


@router.get("/models", response_model=schemas.ModelList, tags=["models"])
async def list_models(service: Serving) -> dict[str, Any]:
    """List all models."""
    return {"models": [model.describe() for model in service.models.values()]}


@router.get(
    "/models/{name}",
    response_model=schemas.ModelDescription,
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
        200: {"model": schemas.Prediction, **schemas.NPZ_RESPONSE},
        **errors(
            _400="the body cannot be read",
            _404="unknown model",
            _408="the body did not arrive in time",
            _413="too many bytes, samples or nodes",
            _415="unknown content type",
            _422="the arrays do not fit the model",
            _503="too many predictions in progress; try again after Retry-After seconds",
            _504="not solved in time",
        ),
    },
    openapi_extra=schemas.PREDICT_BODY,
    tags=["models"],
)
async def predict(name: str, request: Request, service: Serving) -> Response:
    """Solve one or more samples; the response has the format of the request."""
    model = service.model(name)
    form = format_for(request.headers.get("content-type", ""))
    async with service.admit(request) as read_body:
        with service.batcher.arriving():
            body, arrays = await service.run_in_executor(
                _decode, await read_body(), form, model, service.settings
            )
        result = await service.predict(arrays, request)
        content = await service.run_in_executor(form.encode, model, result, body)
    return Response(content, media_type=form.media_type)


def _decode(
    content: bytes, form: Format, model: ServedModel, settings: ServeSettings
) -> tuple[Body, PredictRequest]:
    body = form.decode(content, settings.max_body_bytes)
    return body, validate(body.arrays, model, settings)


@router.get(
    "/health",
    response_model=schemas.Health,
    responses={503: {"model": schemas.Health, "description": "alive, but not ready"}},
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
