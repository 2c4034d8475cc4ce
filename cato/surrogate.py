"""A trained operator for users: physical values in, physical values out."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cato.data.arrays import array_type, channel_names, filled, require_finite
from cato.data.normalise import Normaliser
from cato.data.rollout import RolloutInputs, fewer_steps, next_past
from cato.data.training_range import TrainingRange, Verdict, judge
from cato.errors import InputError, OutsideTrainingRange
from cato.models.contract import Operator, Prediction
from cato.partition import WHOLE, Partition
from cato.problem import Problem

Array = TypeVar("Array", np.ndarray, Tensor)
Arrays = TypeVar("Arrays", np.ndarray, Tensor, list[Any])
"""Clouds of different sizes are lists of arrays."""


class NotFinite(InputError):
    """The prediction for `sample` has NaN or infinite values; `reason` says why."""

    def __init__(self, sample: int, reason: str) -> None:
        super().__init__(f"the prediction for sample {sample} is not finite: {reason}")
        self.sample, self.reason = sample, reason


class Frame(NamedTuple):
    """One application of the operator to a batch of samples."""

    inputs: Float[Tensor, "B N C_in"]
    target: Float[Tensor, "B N C_out"]
    time: Float[Tensor, " B"] | None


def frame_to_learn(
    problem: Problem,
    inputs: Float[Tensor, "B N C_in"],
    targets: Float[Tensor, "B *T N C_out"],
    step: int,
) -> Frame:
    """Frame `step` of the time protocol, for training; a steady problem has frame 0 only.

    Rollouts are trained on the true past ("teacher forcing"), not on predicted frames.
    """
    if problem.time == "steady":
        return Frame(inputs, targets, None)
    target = targets[:, step]
    if problem.time == "conditioned":
        return Frame(inputs, target, _frame_time(problem, step, inputs))
    parts = RolloutInputs.of(problem, inputs)
    past = parts.past
    for frame in targets[:, :step].unbind(1):
        past = torch.cat((past, _continued(past, frame, frame.isnan())), dim=-1)
    return Frame(parts.at(problem, step, past[..., step * target.shape[-1] :]), target, None)


def _continued(past: Tensor, frame: Tensor, unknown: Tensor) -> Tensor:
    """A frame that is fed to a rollout, with the values of the last one where it has none."""
    return torch.where(unknown, past[..., -frame.shape[-1] :], frame)


def join_frames(frames: Sequence[Frame]) -> Frame:
    """One batch of the frames of several samples."""
    inputs, targets, times = zip(*frames, strict=True)
    time = None if times[0] is None else torch.cat(times)
    return Frame(torch.cat(inputs), torch.cat(targets), time)


def _frame_time(problem: Problem, step: int, like: Tensor) -> Float[Tensor, " B"]:
    """Frames are spread evenly over t ∈ [0, 1], unless the problem has their times."""
    time = problem.times[step] if problem.times else step / max(1, problem.num_steps - 1)
    return like.new_full((len(like),), time, dtype=torch.float32)


class Surrogate(nn.Module):
    """A model with its normaliser.

    Calling it keeps the contract of `Operator.forward`, in physical units; `predict` is for users.

    Args:
        model: The operator on normalised values, built for `Problem.seen_by_network`.
        normaliser: Fitted on the training split.
        flux_scale: Physical size of the flux of each output channel; 1 unless given.
        coords: The nodes, if all samples share them.
        has_flux: Whether the model's flux head was trained; the output of an untrained one is
            dropped.

    Attributes:
        step: Optimiser step of the checkpoint that the weights come from; None without one.
        training_range: Range of the training inputs. `predict` warns outside; None never warns.
    """

    model: Operator
    flux_scale: Tensor
    coords: Tensor | None

    def __init__(
        self,
        model: Operator,
        normaliser: Normaliser,
        flux_scale: Float[Tensor, " C_out"] | None = None,
        coords: Float[Tensor, "N D"] | None = None,
        has_flux: bool = True,
    ) -> None:
        super().__init__()
        self.model = model
        self.has_flux = has_flux
        self.step: int | None = None
        self.training_range: TrainingRange | None = None
        self.partition = WHOLE
        self.normaliser = normaliser
        if flux_scale is None:
            is_exact = {"coords", "outputs"} & set(normaliser.problem.float64)
            dtype = torch.float64 if is_exact else torch.float32
            flux_scale = torch.ones(normaliser.problem.num_outputs, dtype=dtype)
        self.register_buffer("flux_scale", flux_scale)
        self.register_buffer("coords", coords)

    @property
    def device(self) -> torch.device:
        return self.flux_scale.device

    @property
    def problem(self) -> Problem:
        return self.normaliser.problem

    @property
    def network_dtype(self) -> torch.dtype:
        """Precision of the network; that of physical values is `Problem.float64`."""
        return next((p.dtype for p in self.model.parameters()), torch.float32)

    def forward(
        self,
        coords: Float[Tensor, "B N D"],
        inputs: Float[Tensor, "B N C_in"],
        *,
        time: Float[Tensor, " B"] | None = None,
        shape: tuple[int, ...] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Prediction:
        """One frame of the solution and its flux, in physical units.

        Nodes are those of this process, see `spread_over`; `shape` is that of the whole mesh.
        """
        on = shape or self.problem.shape
        values, flux = self.model(
            self.normaliser.encode_coords(coords).to(self.network_dtype),
            self.normaliser.encode_inputs(inputs, coords, on).to(self.network_dtype),
            time=time,
            shape=self.partition.shape(on),
            mask=mask,
        )
        if flux is not None:
            flux = flux * self.flux_scale[:, None] if self.has_flux else None
        return Prediction(self.normaliser.decode_outputs(values, coords, inputs, time, on), flux)

    def spread_over(self, partition: Partition) -> None:
        """Let this process compute its part of a mesh only."""
        self.partition = self.normaliser.partition = partition
        self.model.spread_over(partition)

    def solve(
        self,
        coords: Float[Tensor, "B N D"],
        inputs: Float[Tensor, "B N C_in"],
        *,
        shape: tuple[int, ...] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
        steps: int | None = None,
    ) -> Float[Tensor, "B *T N C_out"]:
        """All frames of the solution; a rollout is fed with its own predictions.

        `steps` is another number of frames of a rollout than in training; the inputs have controls
        for each.
        """
        problem = self.problem if steps is None else self.with_steps(steps)
        coords, inputs = self.partition.slab(coords), self.partition.slab(inputs)
        if problem.time == "steady":
            return self.partition.whole(self(coords, inputs, shape=shape, mask=mask).values)
        frames: list[Tensor] = []
        if problem.time == "conditioned":
            for step in range(problem.num_steps):
                time = _frame_time(problem, step, inputs)
                frames.append(self(coords, inputs, time=time, shape=shape, mask=mask).values)
            return self.partition.whole(torch.stack(frames, dim=1))
        parts = RolloutInputs.of(problem, inputs)
        past = parts.past
        for step in range(problem.num_steps):
            seen = parts.at(problem, step, past)
            frames.append(self(coords, seen, shape=shape, mask=mask).values)
            newest = frames[-1]
            if problem.mask == "all":  # these nodes keep what they were filled with
                newest = _continued(past, newest, inputs[..., :1] == 0)
            past = next_past(past, newest)
        return self.partition.whole(torch.stack(frames, dim=1))

    def with_steps(self, steps: int) -> Problem:
        """The problem with another number of frames, which only a rollout has."""
        return self.problem if steps == self.problem.num_steps else self.problem.with_steps(steps)

    @torch.no_grad()
    def charted(self, coords: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"] | None:
        """Chart coordinates of the nodes; None for models without a chart."""
        return self.model.chart_coords(self.normaliser.encode_coords(coords).to(self.network_dtype))

    @torch.no_grad()
    def predict(
        self,
        inputs: Arrays,
        coords: Arrays | None = None,
        batch_size: int = 16,
        steps: int | None = None,
        mask: np.ndarray | None = None,
    ) -> Arrays:
        """Solve for arrays laid out as in files: samples, mesh axes, channels.

        Args:
            inputs: (S, *mesh, C_in). C_in is 0 if the problem has no input channels. If the
                training data had nodes without values, the mask may be left out of the channels:
                it is then `mask` and what is not NaN. For clouds of different sizes a list of
                (N, C_in), and the result is such a list.
            coords: (S, *mesh, D), or (*mesh, D) for all samples. Optional if all training samples
                had the same nodes and `inputs` is on that mesh. For clouds of different sizes a
                list of (N, D).
            batch_size: Samples per forward pass.
            steps: Frames of a rollout; by default as many as in training. With controls `inputs`
                hold those of every frame: `problem.with_steps(steps).inputs` names them.
            mask: Where there are values, (S, *mesh) or (*mesh): nodes of a mesh, or points of
                clouds padded to one size.

        Returns:
            (S, *mesh, C_out), or (S, T, *mesh, C_out) for problems in time; NumPy for NumPy. NaN
            at padding, and at nodes that have no values.

        Raises:
            InputError: The arrays do not fit.
            NotFinite: A result is NaN or infinite; names the sample and the cause.
        """
        if isinstance(inputs, list):
            return self._of_clouds(inputs, coords, batch_size, steps)
        if self.problem.mask and inputs.shape[-1] == self._num_inputs(steps) - 1:
            inputs = self._with_mask(inputs, mask, steps)
        elif mask is not None:
            return self._without_padding(inputs, coords, batch_size, steps, mask)
        values, nodes = self.checked(inputs, coords, steps)
        if self.training_range is not None:
            self._warn_outside(values, nodes)
        shape: tuple[int, ...] = tuple(values.shape[1:-1])
        flat, nodes = values.flatten(1, -2), nodes.flatten(1, -2).expand(len(values), -1, -1)
        was_training = self.training
        self.eval()
        solutions = [
            self.solve(
                nodes[first : first + batch_size],
                flat[first : first + batch_size],
                shape=shape,
                steps=steps,
            )
            for first in range(0, len(flat), batch_size)
        ]
        self.train(was_training)
        solution = torch.cat(solutions)
        self.require_finite(solution, nodes, flat)
        if self.problem.mask == "all":
            nothing = flat[..., :1] == 0
            nothing = nothing if solution.ndim == 3 else nothing[:, None]
            solution = solution.masked_fill(nothing.to(solution.device), torch.nan)
        solution = solution.unflatten(-2, shape)
        return solution.cpu().numpy() if isinstance(inputs, np.ndarray) else solution

    def _num_inputs(self, steps: int | None) -> int:
        return (self.problem if steps is None else self.with_steps(steps)).num_inputs

    def _with_mask(self, inputs: Array, mask: np.ndarray | None, steps: int | None) -> Array:
        """The inputs after their mask, which NaN and `mask` give, with means instead of NaN."""
        problem = self.problem if steps is None else self.with_steps(steps)
        arrays = inputs.cpu().numpy() if isinstance(inputs, Tensor) else inputs
        valid = ~np.isnan(arrays).any(-1)
        if mask is not None:
            valid &= np.asarray(mask, bool)
            arrays = np.where(np.broadcast_to(mask, valid.shape)[..., None] != 0, arrays, np.nan)
        pairs = zip(arrays, valid, strict=True)
        found = np.stack(
            [filled(a, v, problem.inputs[1:], f"sample {i}") for i, (a, v) in enumerate(pairs)]
        )
        return torch.from_numpy(found).to(inputs) if isinstance(inputs, Tensor) else found

    def _of_clouds(self, inputs: Any, coords: Any, batch_size: int, steps: int | None) -> Any:
        """The solutions for a list of clouds of any sizes; those of one size together."""
        nodes = [None] * len(inputs) if coords is None else list(coords)
        if self.problem.geometry != "cloud" or len(nodes) != len(inputs):
            raise InputError(
                f"lists are for clouds, with as many arrays of inputs as of coords; the model is "
                f"for a {self.problem.geometry}, and got {len(inputs)} and {len(nodes)}"
            )
        solutions: list[Any] = []
        while len(solutions) < len(inputs):
            first = len(solutions)
            sizes = [len(one) for one in inputs[first:]]
            last = first + next((i for i, n in enumerate(sizes) if n != sizes[0]), len(sizes))
            some, places = inputs[first:last], nodes[first:last]
            stack: Any = torch.stack if isinstance(some[0], Tensor) else np.stack
            on = None if coords is None else stack(list(places))
            solutions += list(self.predict(stack(list(some)), on, batch_size, steps))
        return solutions

    def _without_padding(
        self,
        inputs: Array,
        coords: Array | None,
        batch_size: int,
        steps: int | None,
        mask: np.ndarray,
    ) -> Array:
        """The solutions for padded clouds, with NaN at padding."""
        kept: np.ndarray = np.broadcast_to(np.asarray(mask, bool), tuple(inputs.shape[:-1]))
        if self.problem.geometry != "cloud":
            raise InputError(
                f"the model was trained without a mask on a {self.problem.geometry}; a mask is for "
                f"clouds, and for models of data with nodes without values"
            )
        if coords is None:
            raise InputError("coords are missing; padded clouds need them")
        places = list(coords) if coords.ndim > 2 else [coords] * len(inputs)
        pick = [torch.from_numpy(k) if isinstance(inputs, Tensor) else k for k in kept]
        clouds = [a[k] for a, k in zip(inputs, pick, strict=True)]
        places = [a[k] for a, k in zip(places, pick, strict=True)]
        found: list[Any] = self._of_clouds(clouds, places, batch_size, steps)
        shape = (len(inputs), *found[0].shape[:-2], *kept.shape[1:], found[0].shape[-1])
        whole: Any = np.full(shape, np.nan, np.float64)
        if isinstance(inputs, Tensor):
            whole = found[0].new_full(shape, torch.nan)
        else:
            whole = whole.astype(found[0].dtype)
        for full, one, k in zip(whole, found, pick, strict=True):
            full[..., k, :] = one
        return whole

    def require_finite(
        self,
        solution: Float[Tensor, "S *T N C_out"],
        coords: Float[Tensor, "S N D"],
        inputs: Float[Tensor, "S N C_in"],
        mask: Bool[Tensor, "S N"] | None = None,
    ) -> None:
        """Raise if a solution for these samples is not finite, naming the sample and the cause."""
        bad = ~torch.isfinite(solution)
        if mask is not None:
            bad &= mask.to(bad.device).view(len(mask), *[1] * (bad.ndim - 3), -1, 1)
        if not bad.any():
            return
        self.require_finite_weights()
        sample = int(bad.flatten(1).any(1).nonzero()[0])
        far: dict[str, float] = {}
        nodes = self.normaliser.encoded("coords", coords[sample].to(self.device))
        problem = self.problem
        if solution.ndim > 3:
            problem = self.with_steps(solution.shape[1])
        mean, std = self.normaliser.of_inputs(problem)
        values = (inputs[sample].to(self.device) - mean) / std
        for name, size in (("coords", nodes), ("inputs", values)):
            if size.numel():
                largest = size.abs().flatten(0, -2).amax(0).tolist()
                far |= dict(zip(channel_names(problem)[name], largest, strict=True))
        worst = max(far, key=lambda name: far[name])
        raise NotFinite(
            sample,
            f"{int(bad[sample].sum())} of {bad[sample].numel()} values overflowed. Its {worst} is "
            f"up to {far[worst]:.3g} deviations from the mean of the training samples; give values "
            f"in the range of the training",
        )

    def require_finite_weights(self) -> None:
        """Raise if a weight or a statistic is not finite: no prediction can be."""
        for name, tensor in self.state_dict().items():
            if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                raise InputError(
                    f"the weights of the model are not finite ({name}): the file is damaged or the "
                    f"training diverged; restore it or train again"
                )

    def verdicts(
        self, inputs: np.ndarray | Tensor | None, coords: np.ndarray | Tensor | None = None
    ) -> list[Verdict]:
        """For each sample of `predict`, whether it is inside the training range."""
        return self._judged(*self.checked(inputs, coords))

    def _judged(self, values: Tensor, nodes: Tensor) -> list[Verdict]:
        arrays = (array.cpu().numpy() for array in (fewer_steps(self.problem, values), nodes))
        return judge(self.training_range, self.problem, *arrays)

    def _warn_outside(self, values: Tensor, nodes: Tensor) -> None:
        if values.shape[-1] < self.problem.num_inputs:
            return  # fewer steps than in training have no verdict
        verdicts = self._judged(values, nodes)
        reasons = {k: v.reason for k, v in enumerate(verdicts) if v.kind == "outside"}
        if reasons:
            first, reason = next(iter(reasons.items()))
            warnings.warn(
                f"{len(reasons)} of {len(verdicts)} samples are outside the training range; "
                f"sample {first}: {reason}",
                OutsideTrainingRange,
                stacklevel=4,  # the line that calls `predict`, which is decorated
            )

    def checked(
        self,
        inputs: np.ndarray | Tensor | None,
        coords: np.ndarray | Tensor | None,
        steps: int | None = None,
    ) -> tuple[Float[Tensor, "S *mesh C_in"], Float[Tensor, "#S *mesh D"]]:
        """The validated arrays of `predict`; inputs may be missing if they have no channels."""
        problem: Problem = self.problem if steps is None else self.with_steps(steps)
        num_axes = len(problem.shape)
        nodes = None if coords is None else _as_tensor(problem, coords, "coords")
        if nodes is not None and nodes.ndim == num_axes + 1:
            nodes = nodes[None]
        if inputs is not None:
            values = _as_tensor(problem, inputs, "inputs")
        elif problem.num_inputs:
            raise InputError(f"inputs are missing; their channels are {', '.join(problem.inputs)}")
        elif nodes is None:
            raise InputError("coords are missing; they are the only input of this model")
        else:
            values = nodes[..., :0]
        if values.ndim != num_axes + 2 or values.shape[-1] != problem.num_inputs:
            expected = ["samples", *problem.shape, problem.num_inputs]
            raise InputError(
                f"inputs must have shape [{', '.join(map(str, expected))}], channels "
                f"({', '.join(problem.inputs)}) last, or the same on another mesh with {num_axes} "
                f"axes; got {list(values.shape)}"
            )
        if not len(values):
            raise InputError("inputs contain no sample; give at least one")
        shape: tuple[int, ...] = tuple(values.shape[1:-1])
        if nodes is None:
            if self.coords is None or shape != problem.shape:
                ours = "nodes that differ by sample" if self.coords is None else problem.shape
                raise InputError(
                    f"coords are required: the model was trained on {ours}; the inputs have {shape}"
                )
            nodes = self.coords.unflatten(0, shape)[None]
        shared: tuple[int, ...] = (*shape, problem.dimension)
        if nodes.shape[1:] != shared or len(nodes) not in (1, len(values)):
            assert coords is not None
            raise InputError(
                f"coords must have shape {list(shared)} or {[len(values), *shared]} to match the "
                f"inputs; got {list(coords.shape)}"
            )
        for name, array in (("inputs", values), ("coords", nodes)):
            if not torch.isfinite(array).all():
                require_finite(array.cpu().numpy(), name, channel_names(problem)[name])
        return values.to(self.device), nodes.to(self.device)


def _as_tensor(problem: Problem, array: np.ndarray | Tensor, what: str) -> Tensor:
    kind = array_type(problem, what)
    if isinstance(array, np.ndarray) and array.dtype.kind in "fiu":
        with np.errstate(over="ignore"):  # too large for float32 is infinite, and reported as such
            array = np.require(array, kind, ["C", "W"])
    try:
        return torch.as_tensor(array, dtype=getattr(torch, kind.__name__))
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be an array of numbers ({error})") from None
