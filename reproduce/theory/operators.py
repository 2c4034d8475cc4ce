"""Charted axial low-rank operators (paper, Definition 1) and their stability (Lemma 2).

    (T_ζ f)_ij = Σ_r a_r(ζ_ij) mean_t(b_r(ζ_it) f_it) + Σ_s c_s(ζ_ij) mean_p(d_s(ζ_pj) f_pj)
                 + ℓ(ζ_ij) f_ij

The coefficients are functions on K = [−1, 1]² whose largest values and Lipschitz constants are
known exactly, so that C_chart of Lemma 2 is a number and not an estimate. ‖·‖ is the plain
Euclidean norm of a mesh function, as in the paper.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import pi
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor


class Coefficients(ABC):
    """Some functions on K, their largest absolute values and their Lipschitz constants."""

    sup: Float[Tensor, " n"]
    lipschitz: Float[Tensor, " n"]

    @abstractmethod
    def __call__(self, zeta: Float[Tensor, "*nodes 2"]) -> Float[Tensor, "n *nodes"]:
        """The values of all functions at chart points."""


class Waves(Coefficients):
    """A sin(ω·ζ + φ).

    Both constants, A and A |ω|₂, are reached on K as soon as |ω|₁ ≥ π/2: the phase then runs
    through an interval of length π, which has a zero of the sine and one of the cosine.
    """

    def __init__(
        self,
        amplitude: Float[Tensor, " n"],
        frequency: Float[Tensor, "n 2"],
        phase: Float[Tensor, " n"],
    ) -> None:
        self.amplitude, self.frequency, self.phase = amplitude, frequency, phase
        self.sup = amplitude.abs()
        self.lipschitz = self.sup * frequency.norm(dim=-1)

    @classmethod
    def draw(cls, num: int, generator: Generator) -> "Waves":
        """Amplitudes in [0.5, 1.5], wave numbers |ω|₂ in [π/2, π], any direction and phase."""
        size, length, angle, phase = torch.rand(
            4, num, generator=generator, dtype=torch.float64
        ).unbind()
        direction = torch.stack(((2 * pi * angle).cos(), (2 * pi * angle).sin()), dim=-1)
        return cls(0.5 + size, pi / 2 * (1 + length[:, None]) * direction, 2 * pi * phase)

    def __call__(self, zeta: Float[Tensor, "*nodes 2"]) -> Float[Tensor, "n *nodes"]:
        """A sin(ω·ζ + φ)."""
        values = self.amplitude * (zeta @ self.frequency.T + self.phase).sin()
        return values.movedim(-1, 0)


class Planes(Coefficients):
    """g·ζ + c; the constants are |g|₁ + |c| and |g|₂."""

    def __init__(self, slope: Float[Tensor, "n 2"], offset: Float[Tensor, " n"]) -> None:
        self.slope, self.offset = slope, offset
        self.sup = slope.abs().sum(-1) + offset.abs()
        self.lipschitz = slope.norm(dim=-1)

    def __call__(self, zeta: Float[Tensor, "*nodes 2"]) -> Float[Tensor, "n *nodes"]:
        """g·ζ + c."""
        return (zeta @ self.slope.T + self.offset).movedim(-1, 0)


class Changes(NamedTuple):
    """How much each coefficient function changes, at most."""

    a: Float[Tensor, " rows"]
    b: Float[Tensor, " rows"]
    c: Float[Tensor, " columns"]
    d: Float[Tensor, " columns"]
    local: Float[Tensor, " one"]


@dataclass(frozen=True)
class ChartedAxialOperator:
    """T_ζ: R_ξ averages along rows, R_η along columns, and a local term, with coefficients."""

    a: Coefficients
    b: Coefficients
    c: Coefficients
    d: Coefficients
    local: Coefficients

    @classmethod
    def draw(cls, num_rows: int, num_columns: int, generator: Generator) -> "ChartedAxialOperator":
        """Random waves as coefficients, of ranks R_ξ and R_η."""
        sizes = (num_rows, num_rows, num_columns, num_columns, 1)
        return cls(*(Waves.draw(size, generator) for size in sizes))

    @property
    def ranks(self) -> tuple[int, int]:
        """R_ξ and R_η."""
        return len(self.a.sup), len(self.c.sup)

    def __call__(
        self, f: Float[Tensor, "B H W"], zeta: Float[Tensor, "H W 2"]
    ) -> Float[Tensor, "B H W"]:
        """T_ζ f."""
        fields = f[:, None]
        rows = self.a(zeta) * (self.b(zeta) * fields).mean(-1, keepdim=True)
        columns = self.c(zeta) * (self.d(zeta) * fields).mean(-2, keepdim=True)
        return rows.sum(1) + columns.sum(1) + self.local(zeta)[0] * f

    def matrix(self, zeta: Float[Tensor, "H W 2"]) -> Float[Tensor, "N N"]:
        """T_ζ as a matrix on the N = H W nodes, row-major."""
        num_nodes = zeta.shape[0] * zeta.shape[1]
        units = torch.eye(num_nodes, dtype=zeta.dtype).unflatten(1, zeta.shape[:2])
        return self(units, zeta).flatten(1).T

    def stability_bound(self, changes: Changes) -> float:
        """Σ(Δa B + A Δb) + Σ(Δc D + C Δd) + Δℓ, the estimate in the proof of Lemma 2.

        It bounds the norm of T's change when the coefficients change by at most Δ at any node and
        the changed b and d still obey ‖b_r‖ ≤ B_r, ‖d_s‖ ≤ D_s.
        """
        rows = changes.a @ self.b.sup + self.a.sup @ changes.b
        columns = changes.c @ self.d.sup + self.c.sup @ changes.d
        return float(rows + columns + changes.local.sum())

    @cached_property
    def chart_constant(self) -> float:
        """C_chart of Lemma 2: every coefficient changes by its Lipschitz constant per unit of δ."""
        parts = (self.a, self.b, self.c, self.d, self.local)
        return self.stability_bound(Changes(*(part.lipschitz for part in parts)))


def chart_distance(first: Float[Tensor, "H W 2"], second: Float[Tensor, "H W 2"]) -> float:
    """δ = max_ij ‖ζ̂_ij − ζ_ij‖."""
    return float((first - second).norm(dim=-1).max())


def random_remainder(num_nodes: int, generator: Generator) -> Float[Tensor, "N N"]:
    """R of Definition 1 for ε_rk = 1: a random matrix with ‖R‖ = 1."""
    matrix = torch.randn(num_nodes, num_nodes, generator=generator, dtype=torch.float64)
    return matrix / torch.linalg.matrix_norm(matrix, 2)


def sharp_operator(num_rows: int, num_columns: int) -> ChartedAxialOperator:
    """All coefficients are ξ: with the whole chart at ξ = 1 − δ moved to ξ = 1, Lemma 2 is sharp.

    Constant f is then multiplied by R ξ² + ξ, R = R_ξ + R_η, so it changes by
    (2 R + 1 − R δ) δ ‖f‖, and C_chart = 2 R + 1.
    """

    def coordinate(num: int) -> Planes:
        slope = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(num, 2)
        return Planes(slope, torch.zeros(num, dtype=torch.float64))

    sizes = (num_rows, num_rows, num_columns, num_columns, 1)
    return ChartedAxialOperator(*(coordinate(size) for size in sizes))
