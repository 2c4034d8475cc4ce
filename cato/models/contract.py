"""The contract of all models.

A model maps node coordinates (B, N, D) and input features (B, N, C_in) to outputs (B, N, C_out). A
grid model views N as H × W inside, row-major. Values are normalised; `cato.surrogate.Surrogate`
converts from and to physical units.
"""

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cato.errors import InputError
from cato.models.shapes import Coords, Features, Mask, Shape, Times
from cato.partition import WHOLE, Partition
from cato.problem import Problem


class Nodes(NamedTuple):
    """Arguments of `Operator.forward`, checked and complete."""

    coords: Coords
    features: Features
    time: Times
    shape: Shape
    mask: Mask

    @property
    def joined(self) -> Float[Tensor, "B N D_plus_C_in"]:
        """[x, f]: coordinates and features as the channels of one tensor."""
        return torch.cat((self.coords, self.features), dim=-1)


class Prediction(NamedTuple):
    """Output of a model."""

    values: Float[Tensor, "B N C_out"]
    flux: Float[Tensor, "B N C_out D"] | None = None  # Gradient of `values`, from a flux head.


class Operator(nn.Module, ABC):
    """A neural operator, and everything that the rest of the library may ask of it.

    Settings are a frozen dataclass, named by the class: `class FNO(Operator, config=FNOConfig)`.
    """

    config_class: ClassVar[type[Any]]
    title: ClassVar[str]  # Name in tables and figures.
    family: ClassVar[str]  # Kind of network, such as "Fourier".
    reference: ClassVar[str]  # Authors, title, venue and year of the paper.
    geometries: ClassVar[tuple[Literal["grid", "mesh", "cloud"], ...]] = ("grid", "mesh", "cloud")
    why_not_cloud: ClassVar[str] = ""  # Why clouds are not among them, a clause for messages.
    permutation_equivariant: ClassVar[bool] = True  # Permuting a cloud permutes the outputs.
    index_inputs: ClassVar[bool] = False  # Published with node indices next to mesh coordinates.
    # Names of the modules between those that read the inputs and those that write the outputs.
    hidden: ClassVar[tuple[str, ...]] = ("blocks",)
    blocks: nn.ModuleList | tuple[()]  # Layers that FSDP shards one by one; if empty, all at once.
    flux_head: nn.Module | None  # Reads out the flux; frozen in training if no loss term uses it.
    chart: nn.Module | None  # Maps coordinates to those in which the model measures distance.
    chart_kind: str | None  # How the chart is obtained, such as "learned"; None without a chart.

    def __init_subclass__(cls, config: type[Any] | None = None) -> None:
        super().__init_subclass__()
        if config is not None:
            cls.config_class = config

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__()
        self.config = config
        self.problem = problem  # later calls may differ from it in `shape` only
        self.blocks, self.flux_head = (), None
        self.chart, self.chart_kind = None, None
        self.partition = WHOLE

    def forward(
        self,
        coords: Coords,
        features: Features,
        *,
        time: Times = None,
        shape: Shape | None = None,
        mask: Mask = None,
    ) -> Prediction:
        """Apply the operator.

        Args:
            coords: Node positions.
            features: Input channels at the nodes; C_in may be 0.
            time: Time in [0, 1] of each sample, for time-conditioned problems.
            shape: Nodes along each mesh axis if it differs from the problem's.
            mask: Clouds only: False marks padding. It changes no other point; the outputs at
                padding are undefined.
        """
        nodes = Nodes(coords, features, time, shape or self.problem.shape, mask)
        return self.operate(self.hide_padding(nodes))

    @abstractmethod
    def operate(self, nodes: Nodes) -> Prediction:
        """The network; `forward` calls it after its checks."""

    def hide_padding(self, nodes: Nodes) -> Nodes:
        """Zeros at the padding of a cloud, so that NaN there cannot reach a product with zero."""
        if nodes.mask is None:
            return nodes
        if self.problem.geometry != "cloud":
            raise InputError("masks are for point clouds; a grid or mesh has no padding")
        padding = ~nodes.mask[..., None]
        coords, features = (x.masked_fill(padding, 0) for x in (nodes.coords, nodes.features))
        return nodes._replace(coords=coords, features=features)

    def chart_coords(self, coords: Coords) -> Coords | None:
        return None if self.chart is None or self.chart_kind is None else self.chart(coords)

    def hidden_matrices(self) -> list[nn.Parameter]:
        """The weight matrices inside the network, which Muon may optimise: those of `hidden`."""
        named = self.named_parameters()
        return [p for name, p in named if p.ndim == 2 and name.split(".")[0] in self.hidden]

    def spread_over(self, partition: Partition) -> None:
        """Compute on the slab of a partition from now on: all nodes are those of the slab."""
        raise InputError(
            f"{self.title} cannot be spread over processes, only CATO on grids and meshes can; "
            f"leave out --train.mesh-parallel"
        )

    def rematerialise(self) -> None:
        """Keep only what enters a block for the backward pass, which computes the rest again."""
        if not self.blocks:
            raise InputError(
                f"{self.title} does not consist of equal blocks to recompute; leave out "
                f"--train.remat"
            )
        # No model draws random numbers in its forward pass.
        again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
        for block in self.blocks:
            block.forward = partial(again, block.forward)

    def freeze(self) -> None:
        """Precompute what depends on the weights only. Called before an export."""
