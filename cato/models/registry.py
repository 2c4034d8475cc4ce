"""All models by name: `build_model("cato", config, problem)`."""

from dataclasses import dataclass
from typing import Any

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
    "fno": ModelEntry(
        "FNO",
        "Fourier",
        FNOConfig,
        FNO,
        "Li et al., Fourier Neural Operator for Parametric PDEs, ICLR 2021",
    ),
    "wmt": ModelEntry(
        "WMT",
        "wavelet",
        WMTConfig,
        WMT,
        "Gupta, Xiao, Bogdan, Multiwavelet-based Operator Learning, NeurIPS 2021",
    ),
    "u_fno": ModelEntry(
        "U-FNO",
        "Fourier",
        UFNOConfig,
        UFNO,
        "Wen et al., U-FNO: an Enhanced Fourier Neural Operator, Advances in Water Resources 2022",
    ),
    "geo_fno": ModelEntry(
        "GEO-FNO",
        "Fourier",
        GeoFNOConfig,
        GeoFNO,
        "Li et al., Fourier Neural Operator with Learned Deformations, JMLR 2023",
    ),
    "u_no": ModelEntry(
        "U-NO",
        "Fourier",
        UNOConfig,
        UNO,
        "Rahman, Ross, Azizzadenesheli, U-NO: U-shaped Neural Operators, TMLR 2023",
    ),
    "f_fno": ModelEntry(
        "F-FNO",
        "Fourier",
        FFNOConfig,
        FFNO,
        "Tran et al., Factorized Fourier Neural Operators, ICLR 2023",
    ),
    "lsm": ModelEntry(
        "LSM",
        "latent spectral",
        LSMConfig,
        LSM,
        "Wu et al., Solving High-Dimensional PDEs with Latent Spectral Models, ICML 2023",
    ),
    "galerkin": ModelEntry(
        "Galerkin",
        "linear attention",
        GalerkinConfig,
        Galerkin,
        "Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021",
    ),
    "ht_net": ModelEntry(
        "HT-Net",
        "window attention",
        HTNetConfig,
        HTNet,
        "Liu et al., Mitigating Spectral Bias for the Multiscale Operator Learning, JCP 2024",
    ),
    "oformer": ModelEntry(
        "OFormer",
        "linear attention",
        OFormerConfig,
        OFormer,
        "Li, Meidani, Barati Farimani, Transformer for PDEs' Operator Learning, TMLR 2023",
    ),
    "gnot": ModelEntry(
        "GNOT",
        "linear attention",
        GNOTConfig,
        GNOT,
        "Hao et al., GNOT: A General Neural Operator Transformer, ICML 2023",
    ),
    "factformer": ModelEntry(
        "FactFormer",
        "axial attention",
        FactFormerConfig,
        FactFormer,
        "Li, Shu, Barati Farimani, Scalable Transformer for PDE Surrogate Modeling, NeurIPS 2023",
    ),
    "ono": ModelEntry(
        "ONO",
        "orthogonal attention",
        ONOConfig,
        ONO,
        "Xiao et al., Improved Operator Learning by Orthogonal Attention, ICML 2024",
    ),
    "transolver": ModelEntry(
        "Transolver",
        "physics attention",
        TransolverConfig,
        Transolver,
        "Wu et al., Transolver: A Fast Transformer Solver for PDEs, ICML 2024",
    ),
    "saot": ModelEntry(
        "SAOT",
        "spectral attention",
        SAOTConfig,
        SAOT,
        "Zhou et al., SAOT: An Enhanced Locality-Aware Spectral Transformer, AAAI 2026",
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


def grid_models() -> tuple[str, ...]:
    """All models that work on meshes."""
    return tuple(name for name, entry in MODELS.items() if "grid" in entry.operator.geometries)


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
        why = entry.operator.why_not_cloud if problem.geometry == "cloud" else ""
        raise InputError(
            f"model {name!r} works on {' and '.join(entry.operator.geometries)} data"
            f"{', because ' + why if why else ''}; {problem.name!r} is a {problem.geometry}. "
            f"Try --model {default_model(problem)}"
        )
    return entry.operator(checked(config, f"model {name}"), problem)


def num_parameters(name: str, config: Any, problem: Problem) -> int:
    """The size of a model, which is not built for it."""
    with torch.device("meta"):  # shapes without numbers
        return sum(p.numel() for p in build_model(name, config, problem).parameters())
