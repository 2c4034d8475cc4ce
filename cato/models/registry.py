"""All models by name: `build_model("cato", config, problem)`."""

from dataclasses import dataclass
from typing import Any

from cato.config import checked
from cato.errors import InputError
from cato.models.cato.cloud import CatoPC, CatoPCConfig
from cato.models.cato.grid import Cato, CatoConfig
from cato.models.contract import Operator
from cato.problem import Problem


@dataclass(frozen=True)
class ModelEntry:
    """What the library knows of a model."""

    title: str
    family: str
    config: type[Any]
    operator: type[Operator]
    reference: str


MODELS: dict[str, ModelEntry] = {
    "cato": ModelEntry(
        "CATO",
        "charted attention",
        CatoConfig,
        Cato,
        "CATO: Charted Attention for Neural PDE Operators",
    ),
    "cato_pc": ModelEntry(
        "CATO-PC", "charted attention", CatoPCConfig, CatoPC, "the same paper, appendix CATO-PC"
    ),
}


def model_entry(name: str) -> ModelEntry:
    """The entry of a model; an unknown name is an error that lists the known ones."""
    if name not in MODELS:
        raise InputError(f"unknown model {name!r}; choose one of {', '.join(MODELS)}")
    return MODELS[name]


def default_model(problem: Problem) -> str:
    """The CATO for the geometry of the problem."""
    return "cato_pc" if problem.geometry == "cloud" else "cato"


def build_model(name: str, config: Any, problem: Problem) -> Operator:
    """A freshly initialised model, sized by the problem.

    Args:
        name: A key of `MODELS`.
        config: An instance of that model's config class.
        problem: What is to be learnt.
    """
    entry = model_entry(name)
    if not isinstance(config, entry.config):
        raise InputError(
            f"model {name!r} takes a {entry.config.__name__}, not {type(config).__name__}"
        )
    if problem.geometry not in entry.operator.geometries:
        raise InputError(
            f"model {name!r} works on {' and '.join(entry.operator.geometries)} data; "
            f"{problem.name!r} is a {problem.geometry}. Try --model {default_model(problem)}"
        )
    return entry.operator(checked(config, f"model {name}"), problem)
