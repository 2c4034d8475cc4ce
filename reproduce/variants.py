"""Models that only experiments train, and the models of the library whose recipes they have.

`plain_cato` is CATO without its compiled loops. A rival with the ending `_flux` reads out a flux
too, by the same last layer as its values, and has the loss of CATO: it answers whether CATO's gain
is its attention or its loss.
"""

from dataclasses import replace
from typing import Any

from cato.models.baselines.f_fno import FFNO, FFNOConfig
from cato.models.baselines.transolver import Transolver, TransolverConfig
from cato.models.contract import Nodes, Operator, Prediction
from cato.models.registry import OUTSIDE
from cato.problem import Problem
from cato.runs.settings import GROUPS, Changes, read_recipe
from reproduce import candidates
from reproduce.attention_variants import PlainCato

FLUX = "_flux"


class WithFlux(Operator):
    """Mixin of a rival with (1 + D) times the outputs: its values, then the gradient of each."""

    def __init__(self, config: Any, problem: Problem) -> None:
        slopes = [f"{name}_{axis}" for name in problem.outputs for axis in range(problem.dimension)]
        offsets = problem.offsets and (*problem.offsets, *[0.0] * len(slopes))
        super().__init__(
            config, replace(problem, outputs=(*problem.outputs, *slopes), offsets=offsets)
        )
        self.problem = problem

    def operate(self, nodes: Nodes) -> Prediction:
        read = super().operate(nodes).values  # type: ignore[safe-super]
        num_outputs = self.problem.num_outputs
        flux = read[..., num_outputs:].unflatten(-1, (num_outputs, -1))
        return Prediction(read[..., :num_outputs], flux)


class FFNOWithFlux(WithFlux, FFNO, config=FFNOConfig):
    """F-FNO with the loss of CATO."""

    title = "F-FNO with CATO's loss"


class TransolverWithFlux(WithFlux, Transolver, config=TransolverConfig):
    """Transolver with the loss of CATO."""

    title = "Transolver with CATO's loss"


VARIANTS: dict[str, tuple[str, type[Operator]]] = {
    candidates.NAME: ("cato", candidates.Candidate),
    "plain_cato": ("cato", PlainCato),
    f"f_fno{FLUX}": ("f_fno", FFNOWithFlux),
    f"transolver{FLUX}": ("transolver", TransolverWithFlux),
}
"""Classes by name, with the model whose recipe each has."""
OUTSIDE.update({name: variant for name, (_, variant) in VARIANTS.items()})


def recipe_of_variant(benchmark: str, scale: str, model: str) -> Changes:
    """The recipe of the model that a variant is one of; empty for models of the library."""
    if model not in VARIANTS:
        return {}
    given = read_recipe(benchmark, scale, VARIANTS[model][0])
    recipe = {group: given[group] for group in GROUPS}
    if model.endswith(FLUX):
        recipe["loss"] = read_recipe(benchmark, scale, "cato")["loss"]
    return recipe
