"""The addresses of the service: models, predictions, health, metrics."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.requests import ClientDisconnect

from cato.serve import schemas
from cato.serve.batching import Question
from cato.serve.codecs import Body, Format, format_of
from cato.serve.models import ServedModel
from cato.serve.schemas import refusals
from cato.serve.service import CLIENT_GONE, Service, service_of
from cato.serve.settings import ServeSettings
from cato.serve.validation import question_of

router = APIRouter()
Serving = Annotated[Service, Depends(service_of)]

_REFUSED = refusals(
    _400="the body cannot be read",
    _404="no such model",
    _408="the body did not arrive in time",
    _413="too many bytes, samples or nodes",
    _415="unknown content type",
    _422="the arrays do not suit the model",
    _503="too many requests under way; try again after Retry-After seconds",
    _504="not solved in time",
)


@router.get("/models", response_model=schemas.ModelList, tags=["models"])
async def list_models(service: Serving) -> dict[str, Any]:
    """All models."""
    return {"models": [model.summary() for model in service.models.values()]}


@router.get(
    "/models/{name}",
    response_model=schemas.ModelDescription,
    responses=refusals(_404="no such model"),
    tags=["models"],
)
async def describe_model(name: str, service: Serving) -> dict[str, Any]:
    """One model: channels, shapes, time, errors."""
    return service.model(name).describe()


@router.post(
    "/models/{name}/predict",
    response_class=Response,
    responses={200: {"model": schemas.Prediction, **schemas.NPZ_ANSWER}, **_REFUSED},
    openapi_extra=schemas.PREDICT_BODY,
    tags=["models"],
)
async def predict(name: str, request: Request, service: Serving) -> Response:
    """Solve for one or more samples; the answer has the format of the question."""
    model = service.model(name)
    form = format_of(request.headers.get("content-type", ""))
    doing = "reading"
    with service.admission():
        try:
            async with asyncio.timeout(service.settings.time_limit):
                with service.batcher.arriving():
                    content = await request.body()
                    doing = "solving"
                    body, question = await service.beside(
                        _understand, content, form, model, service.settings
                    )
                    del content
                answer = await service.ask(question, request)
                written = await service.beside(form.encode, model, answer, body)
        except ClientDisconnect:
            raise HTTPException(CLIENT_GONE, "the client has gone") from None
        except TimeoutError:
            limit = f"{service.settings.time_limit:g} s"
            raise (
                HTTPException(408, f"the body did not arrive within {limit}")
                if doing == "reading"
                else HTTPException(504, f"not solved within {limit}; ask for less, or later")
            ) from None
    return Response(written, media_type=form.media_type)


def _understand(
    content: bytes, form: Format, model: ServedModel, settings: ServeSettings
) -> tuple[Body, Question]:
    body = form.decode(content, settings.max_body_bytes)
    return body, question_of(body.arrays, model, settings)


@router.get(
    "/health",
    response_model=schemas.Health,
    responses={503: {"model": schemas.Health, "description": "alive, but not ready"}},
    tags=["operation"],
)
async def health(service: Serving, response: Response) -> dict[str, Any]:
    """Whether the service is alive (it answers) and ready (it would answer a prediction)."""
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
    """Counters for Prometheus."""
    return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4")
