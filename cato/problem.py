"""An operator-learning problem: geometry, channels and time protocol.

Models take all sizes from a `Problem` and none from their settings, so that any model can be built
for any dataset.
"""

from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Literal, Self, get_args

from cato.errors import InputError

Geometry = Literal["grid", "mesh", "cloud"]
TimeProtocol = Literal["steady", "rollout", "conditioned"]
MIN_NODES = 3  # Minimum nodes along every axis of a grid or mesh, for second-order differences.


@dataclass(frozen=True)
class Problem:
    """The shape of a solution operator (coordinates, inputs) → outputs.

    Attributes:
        name: Name of the problem in files and reports.
        geometry: `grid` (uniform), `mesh` (structured, any node positions) or `cloud` (unordered).
        shape: Nodes along each mesh axis, such as (85, 85). A cloud has the one entry N.
        inputs: Names of the input channels; may be empty if the mesh itself is the input.
        outputs: Names of the output channels.
        dimension: Number of physical coordinates D of a node.
        periodic: For each mesh axis, whether its last node is a neighbour of its first.
        period: For each coordinate, the length after which it repeats, or None. A torus has both
            `periodic` axes and a `period`; a mesh that closes on itself (O-grid) only the former.
        time: `steady`; `rollout`: the outputs are fed back as the newest inputs, `num_steps` times;
            `conditioned`: the model takes the time t in [0, 1] of the frame as an input.
        num_steps: Number of output frames; 1 when steady.
        normalise: Which of "coords", "inputs", "outputs" are normalised to mean 0 and standard
            deviation 1 per channel, over the training samples.
    """

    name: str
    geometry: Geometry
    shape: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dimension: int = 2
    periodic: tuple[bool, ...] = ()
    period: tuple[float | None, ...] = ()
    time: TimeProtocol = "steady"
    num_steps: int = 1
    normalise: tuple[str, ...] = ("inputs", "outputs")

    def __post_init__(self) -> None:
        num_axes = len(self.shape)
        object.__setattr__(self, "periodic", tuple(self.periodic) or (False,) * num_axes)
        object.__setattr__(self, "period", tuple(self.period) or (None,) * self.dimension)
        # Literals are not checked by Python.
        words = {"geometry": (self.geometry, Geometry), "time": (self.time, TimeProtocol)}
        for name, (word, kind) in words.items():
            if word not in get_args(kind):
                raise InputError(f"{name} must be one of {get_args(kind)}; got {word!r}")
        for name in ("inputs", "outputs", "normalise"):
            if isinstance(getattr(self, name), str):
                raise InputError(f"{name} must be a tuple of names, such as ('u',), not one string")
        if set(self.normalise) - {"coords", "inputs", "outputs"}:
            raise InputError(f"only coords, inputs and outputs are normalised: {self.normalise}")
        if any(self.period) and "coords" in self.normalise:
            raise InputError(
                "coordinates with a period cannot be normalised: that changes the period"
            )
        if not self.outputs:
            raise InputError(f"problem {self.name!r} has no output channel")
        if self.geometry == "cloud":
            if num_axes != 1:
                raise InputError(f"a cloud has one axis of points, not shape {self.shape}")
        elif num_axes != self.dimension or not 1 <= num_axes <= 3:
            raise InputError(
                f"a {self.geometry} needs as many axes as coordinates, 1 to 3; "
                f"got shape {self.shape} with {self.dimension} coordinates"
            )
        elif min(self.shape) < MIN_NODES:
            raise InputError(
                f"every mesh axis needs at least {MIN_NODES} nodes for second-order differences; "
                f"got shape {self.shape}. Pass data without a row structure as a cloud"
            )
        if len(self.periodic) != num_axes or len(self.period) != self.dimension:
            raise InputError(
                f"periodic {self.periodic} must name every axis of {self.shape} "
                f"and period {self.period} every one of the {self.dimension} coordinates"
            )

    @property
    def num_nodes(self) -> int:
        return prod(self.shape)

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    @property
    def has_time(self) -> bool:
        """Whether the model takes a time t in [0, 1]."""
        return self.time == "conditioned"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        tuples: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return cls(**tuples)
