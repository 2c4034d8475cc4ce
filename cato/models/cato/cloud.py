"""CATO-PC: CATO on point clouds (paper, appendix "CATO-PC").

Lift h⁰ = Φ_pre([x, f, ζ]) + Φ_cb(ζ) with the learned chart ζ = Φ_chart(x); L blocks of physics
attention, chart-conditioned message passing and MLP, each a residual update with its own learned
scale per channel; final norm; a solution head û and a flux head q̂.

What the paper leaves open:

- ρ(x) = x, d_ζ = D, GELU for σ; Φ_out, Φ_u and Φ_q are linear, the heads as in CATO on meshes.
- A point is one of its own K neighbours (see `nearest_neighbours`).
- Φ_geo has two layers. All blocks share the first, since the graph and the chart are the same for
  all of them: the N·K edges are embedded once per call, and each block reads the result linearly.
- The edge features are multiplied by the fixed number N^(1/D) of nodes per unit length, because
  differences between neighbours are of the size of its inverse and too small to matter.

Permuting the points permutes the outputs, except where the K-th neighbour is one of several at the
same distance. The operator is neither translation nor rotation invariant: the lift and the chart
see absolute coordinates. Where a coordinate is periodic the graph closes over the seam; the lift
and the chart do not, so all coordinates should lie within one period.
"""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count, Positive, Ratio
from cato.kernels.neighbours import gather_neighbours, nearest_neighbours, wrap
from cato.models.cato.chart import Chart, ChartKind
from cato.models.contract import Nodes, Operator, Prediction
from cato.models.layers.attention import PointSliceAttention
from cato.models.layers.frames import PointConfig
from cato.models.layers.nodewise import MLP, Linear, hidden_width, time_embedding
from cato.models.shapes import Coords, Mask, Points
from cato.problem import Problem

_EDGE_WIDTH = 32  # Channels of the edge embedding that the blocks share.


@dataclass(frozen=True)
class CatoPCConfig(PointConfig):
    """Settings of CATO-PC."""

    mlp_ratio: Ratio = 2.0  # Hidden width of the block's MLP, in units of the width.
    neighbours: Count = 16
    """Neighbours K of a point in the local operator, the point itself included."""
    slices: Count = 64  # Slices per head of the physics attention.
    chart: ChartKind = "learned"
    """Coordinates that condition the lift and the messages: learned, or others for ablation."""
    chart_hidden: Count = 64  # Hidden width of the learned chart.
    layer_scale: Positive = 1.0  # Initial value of the scales γ of the residual updates.


class Graph(NamedTuple):
    """The neighbourhoods of a cloud, the same for all blocks."""

    neighbours: Int[Tensor, "B N K"]  # Indices of each point's neighbours, itself first.
    bias: Float[Tensor, "B N K"]
    """Added to attention scores: 0, or −∞ where the neighbour is missing in a small cloud."""
    edges: Float[Tensor, "B N K E"]  # First layer of Φ_geo(g_ij).


class LocalOperator(nn.Module):
    """Chart-conditioned message passing L_pc on h̄ = LN(h).

        m_ij = σ(W_c h̄_i + W_Δ (h̄_j − h̄_i) + Φ_geo(g_ij))
        α_ij = softmax_j(w_sᵀ m_ij / √C)
        L_pc = Φ_out([Σ_j α_ij m_ij, max_j m_ij])

    W_Δ acts on points before differences are taken on edges: K times fewer products.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.centre = Linear(width, width)
        self.delta = Linear(width, width, bias=False)
        self.geometry = Linear(_EDGE_WIDTH, width, bias=False)
        self.score = nn.Parameter(torch.randn(width))
        self.out = Linear(2 * width, width)

    def forward(self, h: Points, graph: Graph) -> Points:
        delta = self.delta(h)
        centre = self.centre(h) - delta
        edges = gather_neighbours(delta, graph.neighbours) + self.geometry(graph.edges)
        messages = F.gelu(edges + centre[:, :, None])
        scores = messages @ self.score / sqrt(h.shape[-1])
        alpha = torch.softmax(scores + graph.bias, dim=-1)
        mean = (alpha[..., None] * messages).sum(2)
        # Missing neighbours repeat the point itself, a neighbour anyway: no mask for the maximum.
        return self.out(torch.cat((mean, messages.amax(2)), dim=-1))


class CatoPCBlock(nn.Module):
    """One layer of CATO-PC."""

    def __init__(self, config: CatoPCConfig) -> None:
        super().__init__()
        width = config.width

        def scale() -> nn.Parameter:
            return nn.Parameter(torch.full((width,), config.layer_scale))

        self.norm_attention, self.scale_attention = nn.LayerNorm(width), scale()
        self.attention = PointSliceAttention(width, config.heads, config.slices)
        self.norm_local, self.scale_local = nn.LayerNorm(width), scale()
        self.local = LocalOperator(width)
        self.norm_mlp, self.scale_mlp = nn.LayerNorm(width), scale()
        self.mlp = MLP(width, hidden_width(width, config.mlp_ratio), width)

    def forward(self, h: Points, graph: Graph, mask: Mask) -> Points:
        h = h + self.scale_attention * self.attention(self.norm_attention(h), mask)
        h = h + self.scale_local * self.local(self.norm_local(h), graph)
        return h + self.scale_mlp * self.mlp(self.norm_mlp(h))


class CatoPC(Operator, config=CatoPCConfig):
    """Charted Axial Transformer Operator for point clouds."""

    title, family = "CATO-PC", "charted attention"
    reference = "the same paper, appendix CATO-PC"
    geometries: ClassVar = ("cloud",)
    blocks: nn.ModuleList
    chart: Chart
    flux_head: nn.Linear

    def __init__(self, config: CatoPCConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        width, dimension = config.width, problem.dimension
        self.num_neighbours = config.neighbours
        self.edge_scale = problem.num_nodes ** (1 / dimension)
        self.chart = Chart(dimension, config.chart, config.chart_hidden)
        self.chart_kind = None if config.chart == "none" else config.chart
        self.lift = MLP(2 * dimension + problem.num_inputs, width, width)
        self.lift_chart = MLP(dimension, width, width)
        self.time = time_embedding(width, problem)
        self.edge = Linear(2 * dimension + 1, _EDGE_WIDTH)
        self.blocks = nn.ModuleList(CatoPCBlock(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(width)
        self.solution_head = Linear(width, problem.num_outputs)
        self.flux_head = Linear(width, problem.num_outputs * dimension)

    def operate(self, nodes: Nodes) -> Prediction:
        coords, features, time, _, mask = nodes
        zeta = self.chart(coords, mask)
        h = self.lift(torch.cat((coords, features, zeta), dim=-1)) + self.lift_chart(zeta)
        if self.time is not None:
            h = h + self.time(time)[:, None]
        graph = self.graph(coords, zeta, mask)
        for block in self.blocks:
            h = block(h, graph, mask)
        h = self.norm(h)
        flux = self.flux_head(h).unflatten(-1, (self.problem.num_outputs, self.problem.dimension))
        return Prediction(self.solution_head(h), flux)

    def graph(self, coords: Coords, zeta: Coords, mask: Mask = None) -> Graph:
        """Neighbours in physical space and the embedding of g_ij = [x_j − x_i, ‖·‖, ζ_j − ζ_i]."""
        period = self.problem.period
        index, absent = nearest_neighbours(coords, self.num_neighbours, period, mask)
        place = torch.cat((coords, zeta), dim=-1)
        step, chart_step = (gather_neighbours(place, index) - place[:, :, None]).chunk(2, dim=-1)
        step = torch.stack([wrap(s, p) for s, p in zip(step.unbind(-1), period, strict=True)], -1)
        length = torch.linalg.vector_norm(step, dim=-1, keepdim=True)
        geometry = self.edge_scale * torch.cat((step, length, chart_step), dim=-1)
        bias = torch.zeros_like(absent, dtype=coords.dtype).masked_fill_(absent, -torch.inf)
        return Graph(index, bias, F.gelu(self.edge(geometry)))
