"""ONO: Xiao et al., "Improved Operator Learning by Orthogonal Attention", ICML 2024.

Two streams start from one lift, (x, f) = MLP([coordinates, inputs]). A transformer on x finds
features φ; whitened, these are the eigenfunctions ψ of the kernel that acts on f. Per block:

    x ← x + attention(LN(x)),   x ← x + MLP(LN(x)),   φ = W x
    C = mean of φ φᵀ = L Lᵀ,    ψ = L⁻¹ φ             so that ⟨ψ_i, ψ_j⟩ = δ_ij
    f ← f + N ψ softplus(μ) ⟨ψ, f⟩
    f ← MLP(LN(f))                                    in the last block: linear, to the outputs

The inner product ⟨·,·⟩ is the mean over the points of a sample. In training C is the mean over the
batch. A running mean of it (momentum 0.9; the plain mean of the first ten batches) is used in
evaluation, where samples must not influence each other and ψ is orthonormal in the mean over
the training data. Each process of a distributed training whitens by its own part of the batch.

Deviations: ⟨ψ, f⟩ is a mean where the published code has a sum, so that the size of the update does
not grow with the resolution; the attention on x is efficient attention (Shen et al. 2021),
softmax(q) (softmax(k)ᵀ v), for all problems, where the authors take it for Navier–Stokes and
plasticity but Nyström attention elsewhere, which depends on the order of the points.
"""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count, Ratio
from cato.models.contract import Nodes
from cato.models.layers.attention import TransformerBlock, check_heads
from cato.models.layers.frames import PointConfig, PointOperator
from cato.models.layers.nodewise import MLP, Linear, hidden_width, start_small, time_embedding
from cato.models.shapes import Mask, Points
from cato.problem import Problem

_MOMENTUM = 0.9  # Share of the past in the running covariance.


@dataclass(frozen=True)
class ONOConfig(PointConfig):
    """Settings of ONO; either stream has `width` channels."""

    num_features: Count = 16  # Number of orthonormal features ψ in each block.
    mlp_ratio: Ratio = 1.0  # Hidden width of the block's MLPs, in units of the width.


class EfficientAttention(nn.Module):
    """W_o softmax(q) (softmax(k)ᵀ v) / √d: queries weigh the d channels of a head, keys points."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        self.qkv = Linear(width, 3 * width, bias=False)
        self.out = Linear(width, width)

    def forward(self, x: Points, mask: Mask = None) -> Points:
        q, k, v = rearrange(self.qkv(x), "b n (t m c) -> t b m n c", t=3, m=self.heads)
        if mask is not None:
            k = k.masked_fill(~mask[:, None, :, None], torch.finfo(k.dtype).min)
        y = q.softmax(-1) @ (k.softmax(2).transpose(2, 3) @ v) / sqrt(q.shape[-1])
        return self.out(rearrange(y, "b m n c -> b n (m c)"))


class Whitening(nn.Module):
    """ψ = L⁻¹ φ with L Lᵀ the covariance of φ, in double precision."""

    covariance: Tensor
    num_batches: Tensor
    inverse: Tensor | None

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.register_buffer("covariance", torch.eye(num_features))
        self.register_buffer("num_batches", torch.zeros(()))
        self.register_buffer("inverse", None, persistent=False)

    def forward(
        self, phi: Float[Tensor, "B N E"], weights: Float[Tensor, "#B N 1"]
    ) -> Float[Tensor, "B N E"]:
        """Whiten; `weights` say how much each point of a sample counts, and sum to one."""
        with torch.autocast(phi.device.type, enabled=False):
            precise = phi.double()  # sums over many points would lose what is to be inverted
            kind = torch.promote_types(phi.dtype, torch.float32)
            if self.inverse is not None:
                return (precise @ self.inverse.mT).to(kind)
            if self.training:
                covariance = (precise.mT @ (weights * precise)).mean(0)
                self.remember(covariance.detach())
            else:
                covariance = self.covariance.double()
            factor = cholesky_factor(covariance, torch.finfo(kind).eps)
            psi = torch.linalg.solve_triangular(factor.mT, precise, upper=True, left=False)
            return psi.to(kind)

    @torch.no_grad()
    def freeze(self) -> None:
        """Keep L⁻¹ of the running covariance, since exported files cannot factorise it."""
        factor = cholesky_factor(self.covariance.double(), torch.finfo(torch.float32).eps)
        identity = torch.eye(factor.shape[0], dtype=factor.dtype, device=factor.device)
        self.inverse = torch.linalg.solve_triangular(factor, identity, upper=False)

    @torch.no_grad()
    def remember(self, covariance: Float[Tensor, "E E"]) -> None:
        self.num_batches += 1
        share = (1 / self.num_batches).clamp_min(1 - _MOMENTUM)
        self.covariance.lerp_(covariance.to(self.covariance.dtype), share)


def cholesky_factor(covariance: Float[Tensor, "E E"], rounding: float) -> Float[Tensor, "E E"]:
    """L with L Lᵀ = C + εI: features that depend on each other have eigenvalues at the rounding."""
    size = rounding * covariance.shape[0] * covariance.trace()
    identity = torch.eye(covariance.shape[0], dtype=covariance.dtype, device=covariance.device)
    return torch.linalg.cholesky(covariance + size * identity)


class ONOBlock(TransformerBlock):
    """One layer of ONO; `mix` is what f goes through at its end."""

    def __init__(self, config: ONOConfig, num_nodes: int, mix: nn.Module) -> None:
        width = config.width
        super().__init__(width, EfficientAttention(width, config.heads), config.mlp_ratio)
        self.num_nodes = num_nodes
        self.features = Linear(width, config.num_features)
        self.whitening = Whitening(config.num_features)
        self.mu = nn.Parameter(torch.zeros(config.num_features))
        self.norm_mix = nn.LayerNorm(width)
        self.mix = mix

    def forward(  # type: ignore[override]
        self, x: Points, f: Points, weights: Float[Tensor, "#B N 1"], mask: Mask
    ) -> tuple[Points, Float[Tensor, "B N C_f"]]:
        x = super().forward(x, mask)
        psi = self.whitening(self.features(x), weights)
        f = f + (psi * (self.num_nodes * F.softplus(self.mu))) @ ((weights * psi).mT @ f)
        return x, self.mix(self.norm_mix(f))


class ONO(PointOperator, config=ONOConfig):
    """Orthogonal Neural Operator."""

    title, family = "ONO", "orthogonal attention"
    reference = "Xiao et al., Improved Operator Learning by Orthogonal Attention, ICML 2024"
    index_inputs: ClassVar = True
    blocks: nn.ModuleList

    def __init__(self, config: ONOConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        width = config.width
        self.lift = MLP(self.num_in, 2 * width, 2 * width)
        self.time = time_embedding(width, problem)
        hidden = hidden_width(width, config.mlp_ratio)
        mixes = [MLP(width, hidden, width) for _ in range(config.depth - 1)]
        self.blocks = nn.ModuleList(
            ONOBlock(config, problem.num_nodes, mix)
            for mix in (*mixes, Linear(width, problem.num_outputs))
        )
        self.apply(start_small)

    def add_time(self, h: Points, time: Float[Tensor, "B 1 E"]) -> Points:
        x, f = h.chunk(2, dim=-1)
        return torch.cat((x + time, f), dim=-1)

    def body(self, h: Points, nodes: Nodes) -> Float[Tensor, "B N C_out"]:
        weights = h.new_ones(1, h.shape[1], 1, dtype=nodes.coords.dtype)
        if nodes.mask is not None:
            weights = weights * nodes.mask[..., None]
        weights = weights / weights.sum(1, keepdim=True)
        x, f = h.chunk(2, dim=-1)
        for block in self.blocks:
            x, f = block(x, f, weights, nodes.mask)
        return f

    def freeze(self) -> None:
        for module in self.modules():
            if isinstance(module, Whitening):
                module.freeze()

    def hidden_matrices(self) -> list[nn.Parameter]:
        """The matrices of the blocks but the very last, which maps to the outputs."""
        head = self.get_parameter(f"blocks.{len(self.blocks) - 1}.mix.weight")
        return [p for p in super().hidden_matrices() if p is not head]
