"""Schemas of requests and responses for the OpenAPI description.

The bodies of predictions are not parsed by these classes: arrays are converted between bytes and
NumPy directly, see `cato.serve.codecs`.
"""

from typing import Any, Literal

from pydantic import BaseModel, Field


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
    bands: Array | None = Field(
        None,
        description="Half-width of the conformal band, the same for all samples; omitted if the "
        "model has none for this mesh.",
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
