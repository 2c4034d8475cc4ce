"""An operator-learning problem: geometry, channels and time protocol.

Models take all sizes from a `Problem` and none from their settings, so that any model can be built
for any dataset.
"""

from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any, Literal, Self, get_args

from cato.errors import InputError

Geometry = Literal["grid", "mesh", "cloud"]
TimeProtocol = Literal["steady", "rollout", "conditioned"]
Reference = Literal["channel", "node", "last"]
MIN_NODES = 3  # Minimum nodes along every axis of a grid or mesh, for second-order differences.


@dataclass(frozen=True)
class Conditioning:
    """How a problem's fields are presented to the network; undone at its output.

    The default is the published protocol: one mean and one deviation per channel. Some models are
    published with `index_inputs` too.

    Attributes:
        reference: What the outputs are measured from. `channel`: the mean of the channel. `node`:
            the training mean of each node, at each time of a conditioned problem; nodes must
            correspond between samples. `last`: the newest input frame of a rollout, so that the
            network predicts increments.
        positions: For each output, the coordinate that it is a position along, or None; the network
            predicts its displacement from the mesh. Empty if no output is a position.
        mesh_inputs: Whether the network gets the displacement of each node from the mean mesh, in
            units of its own deviation, and on meshes the indices of the node, as further inputs.
            For samples with different coordinates whose nodes correspond.
        frame: Mean and deviation of each coordinate that the network sees, if coordinates are
            normalised; 0 and 1 if empty. Fine-tuning has those of its start.
        index_inputs: Whether the network gets the indices of mesh nodes without displacements.
    """

    reference: Reference = "channel"
    positions: tuple[int | None, ...] = ()
    mesh_inputs: bool = False
    frame: tuple[tuple[float, float], ...] = ()
    index_inputs: bool = False


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
        static: Number of leading inputs of a rollout that all its steps see: parameters of the
            sample. The controls come next, then the past frames, the oldest first.
        controls: Names of what is given for every frame of a rollout, such as a source that
            changes in time or the time step. A step that sees H past frames sees the controls of
            the new frame and of the H − 1 before it, which the inputs hold frame by frame.
        times: Times of the frames of a conditioned problem, from 0 to 1; evenly spread if empty.
        normalise: Which of "coords", "inputs", "outputs" are normalised to mean 0 and standard
            deviation 1 per channel, over the training samples.
        conditioning: How the fields are presented to the network.
        float64: Which of "coords", "inputs", "outputs" float32 cannot carry (very large or small
            values, or a small variation around a large mean); they stay in float64 up to the
            network, which works in float32 on normalised values.
        offsets: For each output, the constant that errors leave out of the size they are relative
            to, ‖û − u‖ / ‖u − offset‖, because the variation around it is tiny. Empty if all are
            0, as in the paper.
        units: For each output, the unit in which errors over several outputs measure it, so that
            fields of unlike magnitudes count alike: the RMS of its field. Empty if all are 1, as
            in the paper.
        deviations: For each output, the unit in which the loss measures its errors, the deviation
            of its field; given with `units`.
        has_gaps: Whether targets may be NaN where there is no value: land, solids, times after the
            end of a series. No loss, error or statistic counts these.
        mask: Whether the first input is a mask, 1 at nodes that have values and 0 at the others,
            whose other inputs are filled. `inputs`: only inputs are missing there. `all`: outputs
            too, and the past frames of a rollout keep what they were filled with. Empty: no mask.
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
    static: int = 0
    controls: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    normalise: tuple[str, ...] = ("inputs", "outputs")
    conditioning: Conditioning = Conditioning()
    float64: tuple[str, ...] = ()
    offsets: tuple[float, ...] = ()
    units: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()
    has_gaps: bool = False
    mask: Literal["", "inputs", "all"] = ""

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
        for name in ("normalise", "float64"):
            if set(getattr(self, name)) - {"coords", "inputs", "outputs"}:
                found = getattr(self, name)
                raise InputError(f"{name} takes only coords, inputs and outputs; got {found}")
        for name in ("offsets", "units", "deviations"):
            if len(getattr(self, name)) not in (0, len(self.outputs)):
                raise InputError(f"{name} {getattr(self, name)} must name every output")
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
        if (self.conditioning.reference == "last") > (self.time == "rollout"):
            raise InputError(
                f"outputs as increments (data.reference last) need a rollout; "
                f"{self.name!r} is {self.time}"
            )
        if self.time != "rollout" and (self.static or self.controls):
            raise InputError(
                f"static inputs and controls need a rollout; {self.name!r} is {self.time}"
            )
        is_whole = not self.controls or self.num_past == self.history * self.num_outputs
        if self.time == "rollout" and not (self.history > 0 and is_whole):
            raise InputError(
                f"a rollout needs a past frame of its {self.num_outputs} outputs as its last "
                f"inputs, after {self.static} static ones and {len(self.controls)} controls of "
                f"each frame; got {self.num_inputs} inputs"
            )
        if len(self.times) not in (0, self.num_steps * self.has_time):
            raise InputError(f"times {self.times} must name every frame of a conditioned problem")
        if len(self.conditioning.positions) not in (0, self.num_outputs):
            raise InputError(f"positions {self.conditioning.positions} must name every output")

    @property
    def offset_by_output(self) -> dict[str, float] | None:
        """Offsets by name of the output; None if errors leave out none."""
        return dict(zip(self.outputs, self.offsets, strict=True)) if self.offsets else None

    @property
    def unit_by_output(self) -> dict[str, float] | None:
        """Units by name of the output; None if all are 1."""
        return dict(zip(self.outputs, self.units, strict=True)) if self.units else None

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
    def history(self) -> int:
        """Past frames H that a step of a rollout sees, begun ones included."""
        others = self.static + len(self.controls) * (self.num_steps - 1)
        return -(-(self.num_inputs - others) // (len(self.controls) + self.num_outputs))

    @property
    def num_past(self) -> int:
        """Channels of the past frames of a rollout, its last inputs."""
        return self.num_inputs - self.static - len(self.controls) * self.control_frames

    @property
    def control_frames(self) -> int:
        """Frames for which the inputs of a rollout hold controls."""
        return self.history - 1 + self.num_steps

    @property
    def num_step_inputs(self) -> int:
        """Inputs that the network sees at once: those of a single step, or all."""
        return self.num_inputs - len(self.controls) * (self.num_steps - 1)

    @property
    def step_channels(self) -> list[int]:
        """For each input, which input of a single step it is; controls are at their first one."""
        if not self.controls:
            return list(range(self.num_inputs))
        past = self.static + self.history * len(self.controls)
        controls = range(self.static, self.static + len(self.controls))
        return [
            *range(self.static),
            *(c for _ in range(self.control_frames) for c in controls),
            *range(past, past + self.num_past),
        ]

    def with_steps(self, num_steps: int) -> "Problem":
        """The same rollout over another number of steps."""
        if self.time != "rollout" or num_steps < 1:
            raise InputError(
                f"{self.name!r} is {self.time} and cannot have {num_steps} steps; a rollout can, "
                f"1 or more"
            )
        names = control_names(self.controls, self.history - 1 + num_steps)
        first, last = self.static, self.num_inputs - self.num_past
        inputs = (*self.inputs[:first], *names, *self.inputs[last:])
        return replace(self, num_steps=num_steps, inputs=inputs)

    @property
    def has_time(self) -> bool:
        """Whether the model takes a time t in [0, 1]."""
        return self.time == "conditioned"

    @property
    def has_index_inputs(self) -> bool:
        """Whether the network gets the indices of nodes, which clouds do not have."""
        asked = self.conditioning.mesh_inputs or self.conditioning.index_inputs
        return asked and self.geometry != "cloud"

    @property
    def seen_by_network(self) -> "Problem":
        """The problem that a network is built for: with the inputs that conditioning adds."""
        added: list[str] = []
        if self.conditioning.mesh_inputs:
            added += [f"displacement{d}" for d in range(self.dimension)]
        if self.has_index_inputs:
            for axis, wraps in enumerate(self.periodic):
                added += [f"index{axis}{part}" for part in (("cos", "sin") if wraps else ("",))]
        inputs = self.inputs
        if self.controls:  # of a single step
            shown = self.static + self.history * len(self.controls)
            inputs = (*inputs[:shown], *inputs[-self.num_past :])
        return replace(
            self,
            inputs=(*inputs, *added),
            num_steps=1 if self.controls else self.num_steps,
            static=self.static + len(added) * (self.time == "rollout"),
            conditioning=Conditioning(),
            float64=(),
            offsets=(),
            units=(),
            deviations=(),
            has_gaps=False,
            mask="",
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        values = _with_tuples(values)
        if conditioning := values.get("conditioning"):  # not in version 0.1
            values["conditioning"] = Conditioning(**conditioning)
        return cls(**values)


def control_names(controls: tuple[str, ...], num_frames: int) -> tuple[str, ...]:
    """Names of the inputs that hold controls; the oldest past frame has number 0."""
    return tuple(f"{name}[{frame + 1}]" for frame in range(num_frames) for name in controls)


def _with_tuples(value: Any) -> Any:
    """Nested values from JSON with tuples instead of lists."""
    if isinstance(value, dict):
        return {name: _with_tuples(item) for name, item in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
