"""The shapes of questions and answers, as the OpenAPI page shows them.

Bodies of predictions are not built from these classes: arrays go straight from bytes to NumPy and
back, see `cato.serve.codecs`.
"""

from typing import Any, Literal

from pydantic import BaseModel, Field


class Refusal(BaseModel):
    """Why a request was not answered."""

    detail: str = Field(description="What was expected, what came, what to do.")


class ModelSummary(BaseModel):
    """A model of the list."""

    name: str = Field(description="Its name in addresses.")
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
    """All that is needed to ask a model and to understand its answer."""

    dimension: int = Field(description="Coordinates of a node.")
    periodic: list[bool]
    time: Literal["steady", "rollout", "conditioned"]
    num_steps: int = Field(description="Frames of the outputs.")
    inputs_shape: list[str | int]
    coords_shape: list[str | int]
    outputs_shape: list[str | int]
    needs_coords: bool = Field(description="Whether every request must bring the coordinates.")
    parameters: int
    about: dict[str, Any] = Field(description="Training, benchmark, errors.")


class Health(BaseModel):
    """The state of the service."""

    alive: bool
    ready: bool
    models: int
    waiting: int = Field(description="Predictions in the queue.")


class Flat(BaseModel):
    """An array as a flat list, the last axis fastest."""

    shape: list[int]
    values: list[float]


class Prediction(BaseModel):
    """An answer in JSON; .npz answers hold the same names."""

    model: str
    version: str
    names: list[str] = Field(description="Names of the output channels.")
    seconds: float = Field(description="How long the model ran for this batch.")
    batch: int = Field(description="Samples solved together.")
    outputs: Flat | list[Any] = Field(
        description="(samples, mesh axes, channels); frames after samples for problems in time."
    )
    bands: Flat | list[Any] | None = Field(
        None,
        description="Half-width of the band around the outputs, the same for all samples; left out "
        "where the model has none for this mesh.",
    )


_ARRAY: dict[str, Any] = {
    "anyOf": [
        {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "array"}]}},
        {
            "type": "object",
            "required": ["shape", "values"],
            "additionalProperties": False,
            "properties": {
                "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                "values": {"type": "array", "items": {"type": "number"}},
            },
        },
    ]
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}

PREDICT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Coordinates may be left out where the training mesh is meant, and inputs "
        "where the model has no input channels.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "inputs": _ARRAY | {"description": "(samples, mesh axes, channels)"},
                        "coords": _ARRAY | {"description": "The same, or without samples"},
                    },
                }
            },
            "application/x-npz": _BINARY,
            "application/octet-stream": _BINARY,
        },
    }
}

NPZ_ANSWER: dict[str, Any] = {"content": {"application/x-npz": _BINARY}}


def refusals(**reasons: str) -> dict[int | str, dict[str, Any]]:
    """Documented refusals: `refusals(_404="no such model")`."""
    return {
        int(status[1:]): {"model": Refusal, "description": reason}
        for status, reason in reasons.items()
    }
