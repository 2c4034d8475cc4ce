"""HT-Net: a hierarchy of window attentions, later called HANO.

Xinliang Liu, Bo Xu, Shuhao Cao, Lei Zhang, "Mitigating spectral bias for the multiscale operator
learning", Journal of Computational Physics 2024; first as "HT-Net: Hierarchical Transformer based
Operator Learning Model for Multiscale PDEs", 2022. A stencil embeds the inputs. On every level
the mesh is cut into windows of n = w × w nodes, in which attention has no softmax,

    A(h)_i = Σ_j (q_i · k_j / n + b_(i−j)) v_j,      b learned for each offset i − j and head,

and blocks are h ← h + A(LN h), h ← h + MLP(LN h). Merging four neighbours (4C → 2C channels) gives
the next level, on which windows reach twice as far; from there a linear map (2C → 4C) decomposes
every node onto its four children, to which it is added. A decoder reads out the finest level:
layers of a spectral convolution and a stencil, then an MLP. The outputs for given weights are those
of the authors' code before its rewrite, which their repository keeps as its legacy model.

The mesh is padded to a multiple of w times the largest merge: periodic axes are continued by
themselves, padding of the others is masked and changes no node; n remains w × w.

Deviations: outputs are on the mesh of the inputs, so the embedding has stride 1; the authors',
4 × 4 with stride 2, also halves the mesh. Stencils wrap along periodic axes. The margin of the
decoder is a fraction of the mesh. There is no stochastic depth, which in the authors' training
leaves out up to a tenth of the blocks. Zero Dirichlet values are learnt and not imposed. The
authors' H¹ loss in Fourier space is a matter of training, not part of the model.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from cato.config import Count, Depth, Ratio
from cato.models.contract import Nodes
from cato.models.layers.attention import TransformerBlock, check_heads
from cato.models.layers.frames import MeshFrame, PointConfig, PointOperator
from cato.models.layers.mesh import Stencil, pad_to_multiple
from cato.models.layers.nodewise import ChannelMLP, Linear, time_embedding
from cato.models.layers.spectral import SpectralConv
from cato.models.shapes import Grid, Periodic, Points
from cato.problem import Problem

_MARGIN = 0.1  # Zeros that keep the ends of an axis apart in the decoder, per node of it.
_READ_OUT = 128  # Hidden width of the last MLP.

Rows = Float[Tensor, "B H W C"]
Inside = Float[Tensor, "H W 1"]  # 1 at the nodes of the mesh, 0 at its padding.


@dataclass(frozen=True)
class HTNetConfig(PointConfig):
    """Settings of HT-Net."""

    width: Count = 32
    """Channels C of the finest level; each coarser one has twice those of the one before."""
    depth: Depth = 2  # Blocks on each level.
    levels: Depth = 2  # Levels of the hierarchy.
    window: Count = 8  # Nodes w along each side of a window.
    mlp_ratio: Ratio = 4.0  # Hidden width of the blocks' MLPs, in units of the level's width.
    spectral_layers: Depth = 5  # Layers of the decoder.
    modes: Count = 12  # Frequencies kept along each axis in the decoder.


class WindowAttention(nn.Module):
    """A(h) inside windows of `window` × `window` nodes."""

    offsets: Tensor

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        self.window = window
        self.qkv = Linear(width, 3 * width)
        self.bias = nn.Parameter(0.02 * torch.randn(heads, 2 * window - 1, 2 * window - 1))
        self.out = Linear(width, width)
        nodes = torch.cartesian_prod(torch.arange(window), torch.arange(window)).reshape(-1, 2)
        offsets = (nodes[:, None] - nodes[None] + window - 1).movedim(-1, 0)
        self.register_buffer("offsets", offsets, persistent=False)

    def forward(self, h: Rows, inside: Inside) -> Rows:
        """Attend; nodes where `inside` is 0 are ignored. H and W are multiples of w."""
        w, m = self.window, self.heads
        q, k, v = self.qkv(h).chunk(3, dim=-1)
        q, k, v = (
            rearrange(x, "b (i p) (j q) (m c) -> b (i j) m (p q) c", p=w, q=w, m=m)
            for x in (q, k, v * inside)
        )
        rows, columns = self.offsets
        z = ((q / w**2) @ k.mT + self.bias[:, rows, columns]) @ v
        num_rows = h.shape[1] // w
        return self.out(rearrange(z, "b (i j) m (p q) c -> b (i p) (j q) (m c)", i=num_rows, p=w))


class Hierarchy(nn.Module):
    """The blocks of one level of `width` channels and, merged, `num_coarser` coarser levels."""

    def __init__(self, width: int, num_coarser: int, config: HTNetConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            TransformerBlock(
                width, WindowAttention(width, config.heads, config.window), config.mlp_ratio
            )
            for _ in range(config.depth)
        )
        self.coarser = None
        if num_coarser:
            self.merge = nn.Sequential(
                nn.LayerNorm(4 * width), Linear(4 * width, 2 * width, bias=False)
            )
            self.coarser = Hierarchy(2 * width, num_coarser - 1, config)
            self.decompose = Linear(2 * width, 4 * width)

    def forward(self, h: Rows, inside: Inside) -> Rows:
        for block in self.blocks:
            h = block(h, inside)
        if self.coarser is None:
            return h
        children = rearrange(h * inside, "b (i p) (j q) c -> b i j (p q c)", p=2, q=2)
        # The mesh begins at node 0: a parent has a child inside exactly if its first child is.
        parents = self.coarser(self.merge(children), inside[::2, ::2])
        update = self.decompose(parents)
        return h + rearrange(update, "b i j (p q c) -> b (i p) (j q) c", p=2, q=2)


class DecoderLayer(nn.Module):
    """A spectral convolution and a stencil."""

    def __init__(self, width: int, modes: int, periodic: Periodic) -> None:
        super().__init__()
        self.spectral = SpectralConv(width, width, (modes, modes))
        self.stencil = Stencil(width, width, periodic)

    def forward(self, x: Grid) -> Grid:
        return self.spectral(x) + self.stencil(x)


class HTNet(PointOperator, config=HTNetConfig):
    """Hierarchical transformer for grids and structured meshes of 2 axes."""

    title, family = "HT-Net", "window attention"
    two_axes: ClassVar = True
    hidden = ("hierarchy", "decoder")
    reference = (
        "Liu et al., Mitigating Spectral Bias for the Multiscale Operator Learning, JCP 2024"
    )
    geometries: ClassVar = ("grid", "mesh")
    why_not_cloud: ClassVar[str] = "its windows and their hierarchy are cut from the rows of a mesh"

    def __init__(self, config: HTNetConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        width = config.width
        self.multiple = config.window * 2 ** (config.levels - 1)
        self.embed = Stencil(self.num_in, width, problem.periodic)
        self.norm = nn.LayerNorm(width)
        self.time = time_embedding(width, problem)
        self.hierarchy = Hierarchy(width, config.levels - 1, config)
        self.frame = MeshFrame(problem.periodic, _MARGIN)
        layers = [
            DecoderLayer(width, config.modes, problem.periodic)
            for _ in range(config.spectral_layers)
        ]
        self.decoder = nn.Sequential(*(m for layer in layers for m in (layer, nn.GELU())))[:-1]
        self.head = ChannelMLP(width, _READ_OUT, problem.num_outputs)

    def initial_state(self, nodes: Nodes) -> Points:
        return self.norm(self.embed(nodes.joined.mT.unflatten(2, nodes.shape)).flatten(2).mT)

    def body(self, h: Points, nodes: Nodes) -> Float[Tensor, "B N C_out"]:
        num_rows, num_columns = nodes.shape
        h = h.unflatten(1, nodes.shape)
        padded = pad_to_multiple(h, (self.multiple, self.multiple), self.problem.periodic)
        h = self.hierarchy(*padded)[:, :num_rows, :num_columns]
        h = self.frame(h.flatten(1, 2).mT, self.decoder, nodes)
        return self.head(h).mT
