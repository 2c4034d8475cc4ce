"""All models by name: `build_model("cato", config, problem)`."""

from typing import Any

import torch

from cato.config import checked
from cato.errors import InputError
from cato.models.baselines.f_fno import FFNO
from cato.models.baselines.factformer import FactFormer
from cato.models.baselines.fno import FNO
from cato.models.baselines.galerkin import Galerkin
from cato.models.baselines.geo_fno import GeoFNO
from cato.models.baselines.gnot import GNOT
from cato.models.baselines.ht_net import HTNet
from cato.models.baselines.lsm import LSM
from cato.models.baselines.oformer import OFormer
from cato.models.baselines.ono import ONO
from cato.models.baselines.saot import SAOT
from cato.models.baselines.transolver import Transolver
from cato.models.baselines.u_fno import UFNO
from cato.models.baselines.u_no import UNO
from cato.models.baselines.wmt import WMT
from cato.models.cato.cloud import CatoPC
from cato.models.cato.grid import Cato
from cato.models.contract import Operator
from cato.problem import Problem

MODELS: dict[str, type[Operator]] = {
    "cato": Cato,
    "cato_pc": CatoPC,
    "fno": FNO,
    "wmt": WMT,
    "u_fno": UFNO,
    "geo_fno": GeoFNO,
    "u_no": UNO,
    "f_fno": FFNO,
    "lsm": LSM,
    "galerkin": Galerkin,
    "ht_net": HTNet,
    "oformer": OFormer,
    "gnot": GNOT,
    "factformer": FactFormer,
    "ono": ONO,
    "transolver": Transolver,
    "saot": SAOT,
}

OUTSIDE: dict[str, type[Operator]] = {}
"""Models that are not part of the library, added by the program that trains them."""


def model_class(name: str) -> type[Operator]:
    """The class of a model; an unknown name is an error that lists the known ones."""
    if name in OUTSIDE:
        return OUTSIDE[name]
    if name not in MODELS:
        raise InputError(f"unknown model {name!r}; choose one of {', '.join(MODELS)}")
    return MODELS[name]


def default_model(problem: Problem) -> str:
    """The CATO for the geometry of the problem."""
    return "cato_pc" if problem.geometry == "cloud" else "cato"


def candidates(problem: Problem) -> tuple[str, ...]:
    """CATO for the problem and the two models that come closest to it (docs/results.md).

    In two dimensions those are of the Fourier family, which does not work in others.
    """
    if problem.dimension == 2:
        return default_model(problem), "f_fno", "geo_fno"
    if problem.geometry == "cloud":
        return default_model(problem), "galerkin", "saot"
    return default_model(problem), "factformer", "gnot"


def build_model(name: str, config: Any, problem: Problem) -> Operator:
    """A freshly initialised model with an instance of its config class, sized by the problem.

    It is built for the problem as a network sees it, with the inputs that conditioning adds.
    """
    entry = model_class(name)
    if not isinstance(config, entry.config_class):
        raise InputError(
            f"model {name!r} takes a {entry.config_class.__name__}, not {type(config).__name__}"
        )
    if problem.geometry not in entry.geometries:
        why = entry.why_not_cloud if problem.geometry == "cloud" else ""
        raise InputError(
            f"model {name!r} works on {' and '.join(entry.geometries)} data"
            f"{', because ' + why if why else ''}; {problem.name!r} is a {problem.geometry}. "
            f"Try --model {default_model(problem)}"
        )
    return entry(checked(config, f"model {name}"), problem.seen_by_network)


def num_parameters(name: str, config: Any, problem: Problem) -> int:
    """Number of parameters, without allocating them."""
    try:
        with torch.device("meta"):
            return sum(p.numel() for p in build_model(name, config, problem).parameters())
    except (RuntimeError, OverflowError) as error:
        if "overflow" not in str(error).lower():
            raise
        raise InputError(
            f"model {name!r} with these settings is too large for any memory"
        ) from None
