"""What the network sees: fields of mean 0 and deviation 1, conditioned as the problem says.

Coordinates, inputs and outputs that are in `Problem.normalise` have one mean and one deviation per
channel over all training samples and nodes; the others pass unchanged. `Problem.conditioning` adds
to that: outputs measured from the mean of their node or from the last frame, positions as mesh plus
displacement, and inputs that tell one mesh from another. Statistics of nodes are interpolated along
the mesh axes for meshes of another size.

Statistics of what `Problem.float64` names are float64: there a large mean is subtracted before
anything is rounded to the network's float32, and added to its outputs in float64.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cato.data.dataset import Dataset
from cato.data.statistics import known_part, statistics_of
from cato.errors import InputError
from cato.partition import WHOLE
from cato.problem import Problem

MIN_DEVIATION = 1e-2
"""Minimum deviation of a node's position, in units of the largest one: displacements of nodes that
hardly move are not blown up to the size of the others."""

MAX_SCATTER = 0.5
"""The points of clouds correspond if the position of a point varies by at most this, in units of
the deviation of all points."""

Shape = tuple[int, ...]


class Normaliser(nn.Module):
    """Maps physical values to those of the network and back; saved and moved with the model.

    A new normaliser is the identity; use `fit`.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem
        self.partition = WHOLE  # What part of a mesh the nodes of the arguments are.
        outputs: Shape = (problem.num_outputs,)
        sizes: dict[str, Shape] = {
            "coords": (problem.dimension,),
            "inputs": (problem.num_step_inputs,),
        }
        if problem.conditioning.mesh_inputs:
            sizes["mesh"] = (problem.num_nodes, problem.dimension)
        sizes["outputs"] = outputs
        if problem.conditioning.reference == "node":
            frames = (problem.num_steps,) if problem.has_time else ()
            sizes["outputs"] = (*frames, problem.num_nodes, *outputs)
            outputs = (*frames, 1, *outputs)
        for name, size in sizes.items():
            is_exact = ("coords" if name == "mesh" else name) in problem.float64
            dtype = torch.float64 if is_exact else torch.float32
            self.register_buffer(f"{name}_mean", torch.zeros(size, dtype=dtype))
            deviations = outputs if name == "outputs" else size
            self.register_buffer(f"{name}_std", torch.ones(deviations, dtype=dtype))

    @classmethod
    def fit(cls, train: Dataset) -> "Normaliser":
        """Fit to a training set."""
        problem, statistics = train.problem, statistics_of(train)
        found: dict[str, tuple[Tensor, Tensor]] = {}
        for name, of in statistics.moments.items():
            what = name.split()[0]
            if not isinstance(of.count, int) and (
                what in ("coords", "inputs") or not problem.has_gaps
            ):
                raise InputError(f"the training {what} contain NaN or infinite values; remove them")
        if "coords" in problem.normalise:
            moments = statistics.moments["coords"]
            found["coords"] = moments.mean, moments.deviation
        if "inputs" in problem.normalise:
            found["inputs"] = statistics.step_inputs(problem)
        if problem.conditioning.mesh_inputs:
            require_corresponding(train)
            mesh = statistics.moments["coords by node"]
            std = mesh.deviation
            found["mesh"] = mesh.mean, std.clamp(min=MIN_DEVIATION * std.max().item())
        if problem.conditioning.reference == "node":
            require_corresponding(train)
            outputs = statistics.outputs(problem.conditioning, by_node=True)
            if problem.time == "rollout":  # one mean for all frames
                outputs = outputs.over_first_axis()
            found["outputs"] = outputs.filled(), outputs.deviation_over(-2)
        elif "outputs" in problem.normalise:
            outputs = statistics.outputs(problem.conditioning)
            found["outputs"] = outputs.mean, outputs.deviation
        normaliser = cls(problem)
        for name, (mean, std) in found.items():
            if not (mean.isfinite() & std.isfinite()).all():
                raise InputError(f"the training {name} contain NaN or infinite values; remove them")
            unit = _unit(mean, std, normaliser.get_buffer(f"{name}_mean").dtype)
            if name == "coords" and problem.conditioning.frame:
                origin, size = torch.tensor(problem.conditioning.frame, dtype=unit.dtype).T
                unit = unit / size
                mean = mean - origin * unit
            normaliser.get_buffer(f"{name}_mean").copy_(mean)
            normaliser.get_buffer(f"{name}_std").copy_(unit)
        return normaliser

    def encode_coords(self, coords: Float[Tensor, "*batch N D"]) -> Float[Tensor, "*batch N D"]:
        return self.encoded("coords", coords)

    def encode_inputs(
        self,
        inputs: Float[Tensor, "*batch N C_in"],
        coords: Float[Tensor, "*batch N D"],
        shape: Shape,
    ) -> Float[Tensor, "*batch N F"]:
        """Physical inputs to those of the network, with what conditioning adds."""
        features = [self.encoded("inputs", inputs)]
        if self.problem.conditioning.mesh_inputs:
            mean, std = (self._on(shape, self.get_buffer(f"mesh_{m}")) for m in ("mean", "std"))
            features.append((coords - mean) / std)
        if self.problem.has_index_inputs:
            index = index_coords(shape, self.problem.periodic).to(features[0])
            features.append(self.partition.slab(index).expand(*inputs.shape[:-1], -1))
        return torch.cat(features, dim=-1)

    def decode_outputs(
        self,
        values: Float[Tensor, "B N C_out"],
        coords: Float[Tensor, "B N D"],
        inputs: Float[Tensor, "B N C_in"],
        time: Float[Tensor, " B"] | None,
        shape: Shape,
    ) -> Float[Tensor, "B N C_out"]:
        """Outputs of the network to physical values."""
        mean, std = self.get_buffer("outputs_mean"), self.get_buffer("outputs_std")
        if self.problem.conditioning.reference == "node":
            if time is not None:  # linear between the frames of the training
                weights = self._frame_weights(time).to(mean)
                mean, std = (torch.tensordot(weights, m, 1) for m in (mean, std))
            mean = self._on(shape, mean)
        outputs = values * std + mean
        known = known_part(self.problem, coords, inputs)
        return outputs if known is None else outputs + known

    def encoded(self, name: str, values: Tensor) -> Tensor:
        """`coords`, or `inputs` of a step, in units of their deviation from their mean."""
        return (values - self.get_buffer(f"{name}_mean")) / self.get_buffer(f"{name}_std")

    def of_inputs(self, problem: Problem) -> tuple[Tensor, Tensor]:
        """Mean and deviation of all inputs of a sample, also of a rollout of other length."""
        channels = problem.step_channels
        mean, std = (self.get_buffer(f"inputs_{name}")[channels] for name in ("mean", "std"))
        return mean, std

    def _frame_weights(self, time: Float[Tensor, " B"]) -> Float[Tensor, "B T"]:
        """Weights of the frames of the training that interpolate linearly to these times."""
        if self.problem.times:
            times = torch.tensor(self.problem.times, device=time.device, dtype=time.dtype)
            place = torch.searchsorted(times, time[:, None].contiguous()).clamp(1, len(times) - 1)
            before, after = times[place - 1], times[place]
            position = place - 1 + ((time[:, None] - before) / (after - before)).clamp(0, 1)
        else:
            position = time[:, None] * (self.problem.num_steps - 1)
        frames = torch.arange(self.problem.num_steps, device=time.device)
        return (1 - (position - frames).abs()).clamp(min=0)

    def _on(self, shape: Shape, statistics: Float[Tensor, "*T N C"]) -> Float[Tensor, "*T M C"]:
        """Statistics of the training nodes on a mesh of this shape."""
        problem = self.problem
        if problem.geometry == "cloud":
            if shape != problem.shape:
                raise InputError(
                    f"the model was trained on clouds of {problem.num_nodes} corresponding points "
                    f"and these have {shape[0]}; train with --data.conditioning published for "
                    f"clouds of any size"
                )
            return statistics
        # Exporting compares no sizes: a comparison would fix the mesh in the graph.
        if not torch.compiler.is_exporting() and shape == problem.shape:
            return self.partition.slab(statistics)
        field = statistics.unflatten(-2, problem.shape)
        for axis, (size, wraps) in enumerate(zip(shape, problem.periodic, strict=True)):
            field = _resample(field, axis - len(shape) - 1, size, wraps)
        return self.partition.slab(field.flatten(-len(shape) - 1, -2))


def index_coords(shape: Shape, periodic: tuple[bool, ...]) -> Float[Tensor, "N I"]:
    """Indices of the nodes, −1 to 1 along each axis; cosine and sine along periodic ones."""
    axes = []
    for size, wraps in zip(shape, periodic, strict=True):
        unit = torch.arange(size) / (size if wraps else size - 1)
        angle = 2 * torch.pi * unit
        axes.append(torch.stack((angle.cos(), angle.sin()) if wraps else (2 * unit - 1,), dim=-1))
    lines = [
        line.reshape(*(-1 if a == axis else 1 for a in range(len(shape))), line.shape[-1])
        for axis, line in enumerate(axes)
    ]
    return torch.cat([line.expand(*shape, -1) for line in lines], dim=-1).flatten(0, -2)


def why_not_corresponding(data: Dataset) -> str:
    """Why node i of one sample is not node i of another; empty if it is."""
    if data.is_padded:
        return "clouds of different sizes have no corresponding points"
    if data.problem.geometry != "cloud" or data.shared_coords is not None:
        return ""
    statistics = statistics_of(data).moments
    node, cloud = (statistics[name].deviation for name in ("coords by node", "coords"))
    scatter = float(node.square().sum(-1).mean().sqrt() / cloud.square().sum().sqrt())
    if scatter <= MAX_SCATTER:
        return ""
    return f"the points of the clouds do not correspond, point i varies by {scatter:.0%} of a cloud"


def require_corresponding(data: Dataset) -> None:
    """Raise if the statistics of nodes have no meaning."""
    if why := why_not_corresponding(data):
        raise InputError(f"{why}; use --data.reference channel --data.mesh-inputs False")


def _resample(field: Tensor, axis: int, size: int, wraps: bool) -> Tensor:
    """Linear interpolation of one axis to `size` nodes, exact at the old ones."""
    old = field.shape[axis]
    place = torch.arange(size, device=field.device) * (old if wraps else old - 1)
    place = place / (size if wraps else size - 1)
    left = place.floor().long()
    share = (place - left).reshape(-1, *(-axis - 1) * [1]).to(field)
    right = (left + 1) % old if wraps else (left + 1).clamp(max=old - 1)
    return torch.lerp(field.index_select(axis, left), field.index_select(axis, right), share)


def _unit(mean: Tensor, std: Tensor, dtype: torch.dtype) -> Tensor:
    """The deviation to divide by: 1 for values that are constant.

    A deviation below the rounding of the mean is noise: dividing by it would amplify it. `dtype` is
    that of the values.
    """
    limits = torch.finfo(dtype)
    size = mean.abs() if mean.shape == std.shape else mean.abs().amax(-2, keepdim=True)
    return torch.where(std <= (limits.eps * size).clamp(min=limits.tiny), 1.0, std)
