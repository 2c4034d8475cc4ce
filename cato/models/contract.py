"""The one contract that every model of the library keeps.

A model maps node coordinates (B, N, D) and input features (B, N, C_in) to outputs (B, N, C_out). A
grid model views N as H × W inside, row-major. Values are normalised; physical values are the
business of `cato.surrogate.Surrogate`.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from cato.errors import InputError
from cato.problem import Problem


class Prediction(NamedTuple):
    """What a model returns."""

    values: Float[Tensor, "B N C_out"]
    flux: Float[Tensor, "B N C_out D"] | None = None
    """Auxiliary estimate of the gradient of `values`, where the model has a flux head."""


class Operator(nn.Module, ABC):
    """A neural operator.

    Attributes:
        config: Its settings, an instance of the config dataclass beside the class.
        problem: The problem it was built for; sizes of later calls may differ in `shape` only.
        geometries: The geometries the class can be built for.
        why_not_cloud: Why clouds are not among them, a clause for messages.
        permutation_equivariant: Whether permuting the points of a cloud permutes the outputs.
    """

    geometries: ClassVar[tuple[Literal["grid", "mesh", "cloud"], ...]]
    why_not_cloud: ClassVar[str] = ""
    permutation_equivariant: ClassVar[bool] = True

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__()
        self.config = config
        self.problem = problem

    @abstractmethod
    def forward(
        self,
        coords: Float[Tensor, "B N D"],
        features: Float[Tensor, "B N C_in"],
        *,
        time: Float[Tensor, " B"] | None = None,
        shape: tuple[int, ...] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Prediction:
        """Apply the operator.

        Args:
            coords: Node positions.
            features: Input channels at the nodes; C_in may be 0.
            time: Time in [0, 1] of each sample, for time-conditioned problems.
            shape: Nodes along each mesh axis where it differs from the problem's.
            mask: Clouds only: False marks padding, which must not change any other point.
        """

    def freeze(self) -> None:
        """Compute what depends on the weights alone once and for all, before an export."""

    def hide_padding(
        self,
        coords: Float[Tensor, "B N D"],
        features: Float[Tensor, "B N C_in"],
        mask: Bool[Tensor, "B N"] | None,
    ) -> tuple[Float[Tensor, "B N D"], Float[Tensor, "B N C_in"]]:
        """Zeros at the padding of a cloud: whatever is there must not reach a product with zero."""
        if mask is None:
            return coords, features
        if self.problem.geometry != "cloud":
            raise InputError("a grid or mesh is always whole; masks are for point clouds")
        padding = ~mask[..., None]
        return coords.masked_fill(padding, 0), features.masked_fill(padding, 0)

    def hidden_matrices(self) -> list[nn.Parameter]:
        """The weight matrices inside the network, which Muon may optimise: those of `blocks`."""
        named = self.named_parameters()
        return [p for name, p in named if name.startswith("blocks.") and p.ndim == 2]
