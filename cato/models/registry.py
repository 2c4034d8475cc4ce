"""All models by name: `build_model("cato", config, problem)`."""

from typing import Any, NamedTuple

import torch

from cato.config import checked
from cato.errors import InputError
from cato.models.baselines.f_fno import FFNO, FFNOConfig
from cato.models.baselines.factformer import FactFormer, FactFormerConfig
from cato.models.baselines.fno import FNO, FNOConfig
from cato.models.baselines.galerkin import Galerkin, GalerkinConfig
from cato.models.baselines.geo_fno import GeoFNO, GeoFNOConfig
from cato.models.baselines.gnot import GNOT, GNOTConfig
from cato.models.baselines.ht_net import HTNet, HTNetConfig
from cato.models.baselines.lsm import LSM, LSMConfig
from cato.models.baselines.oformer import OFormer, OFormerConfig
from cato.models.baselines.ono import ONO, ONOConfig
from cato.models.baselines.saot import SAOT, SAOTConfig
from cato.models.baselines.transolver import Transolver, TransolverConfig
from cato.models.baselines.u_fno import UFNO, UFNOConfig
from cato.models.baselines.u_no import UNO, UNOConfig
from cato.models.baselines.wmt import WMT, WMTConfig
from cato.models.cato.cloud import CatoPC, CatoPCConfig
from cato.models.cato.grid import Cato, CatoConfig
from cato.models.contract import Operator
from cato.problem import Problem


class ModelEntry(NamedTuple):
    """A model with its settings; title, family and reference are attributes of the operator."""

    operator: type[Operator]
    config: type[Any]

    @property
    def title(self) -> str:
        """Name in tables and figures."""
        return self.operator.title

    @property
    def family(self) -> str:
        """Kind of network, such as "Fourier"."""
        return self.operator.family

    @property
    def reference(self) -> str:
        """Authors, title, venue and year."""
        return self.operator.reference


MODELS: dict[str, ModelEntry] = {
    "cato": ModelEntry(Cato, CatoConfig),
    "cato_pc": ModelEntry(CatoPC, CatoPCConfig),
    "fno": ModelEntry(FNO, FNOConfig),
    "wmt": ModelEntry(WMT, WMTConfig),
    "u_fno": ModelEntry(UFNO, UFNOConfig),
    "geo_fno": ModelEntry(GeoFNO, GeoFNOConfig),
    "u_no": ModelEntry(UNO, UNOConfig),
    "f_fno": ModelEntry(FFNO, FFNOConfig),
    "lsm": ModelEntry(LSM, LSMConfig),
    "galerkin": ModelEntry(Galerkin, GalerkinConfig),
    "ht_net": ModelEntry(HTNet, HTNetConfig),
    "oformer": ModelEntry(OFormer, OFormerConfig),
    "gnot": ModelEntry(GNOT, GNOTConfig),
    "factformer": ModelEntry(FactFormer, FactFormerConfig),
    "ono": ModelEntry(ONO, ONOConfig),
    "transolver": ModelEntry(Transolver, TransolverConfig),
    "saot": ModelEntry(SAOT, SAOTConfig),
}


def model_entry(name: str) -> ModelEntry:
    """The entry of a model; an unknown name is an error that lists the known ones."""
    if name not in MODELS:
        raise InputError(f"unknown model {name!r}; choose one of {', '.join(MODELS)}")
    return MODELS[name]


def default_model(problem: Problem) -> str:
    """The CATO for the geometry of the problem."""
    return "cato_pc" if problem.geometry == "cloud" else "cato"


def grid_models() -> tuple[str, ...]:
    """All models that work on meshes."""
    return tuple(name for name, entry in MODELS.items() if "grid" in entry.operator.geometries)


def build_model(name: str, config: Any, problem: Problem) -> Operator:
    """A freshly initialised model with an instance of its config class, sized by the problem."""
    entry = model_entry(name)
    if not isinstance(config, entry.config):
        raise InputError(
            f"model {name!r} takes a {entry.config.__name__}, not {type(config).__name__}"
        )
    if problem.geometry not in entry.operator.geometries:
        why = entry.operator.why_not_cloud if problem.geometry == "cloud" else ""
        raise InputError(
            f"model {name!r} works on {' and '.join(entry.operator.geometries)} data"
            f"{', because ' + why if why else ''}; {problem.name!r} is a {problem.geometry}. "
            f"Try --model {default_model(problem)}"
        )
    return entry.operator(checked(config, f"model {name}"), problem)


def num_parameters(name: str, config: Any, problem: Problem) -> int:
    """Number of parameters, without allocating them."""
    with torch.device("meta"):
        return sum(p.numel() for p in build_model(name, config, problem).parameters())
