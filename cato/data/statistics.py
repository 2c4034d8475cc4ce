"""Moments of the training samples, in one pass: normalisation and conditioning follow from them.

The pass takes the samples in batches of a size that depends on the problem alone, and adds up in
double precision, so that data in memory and streamed data give the very same numbers.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import prod
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from cato.data.arrays import sample_shapes
from cato.data.dataset import Batch, Dataset
from cato.data.moments import Moments
from cato.problem import Conditioning, Problem

SAMPLES_AT_ONCE = 64
VALUES_AT_ONCE = 2**22  # Bounds the memory of large samples.


Pass = Callable[[Batch], Tensor]


@runtime_checkable
class Collector(Protocol):
    """What takes part in a pass over all samples."""

    def add(self, batch: Batch) -> None:
        """The next samples."""


class Statistics:
    """The moments of one pass over training samples, by name.

    coords, inputs              of all values of a channel
    increments                  of the outputs minus the frame before, in rollouts
    coords by node              of the values of a node over the samples
    outputs by node             the same at every frame; if samples are padded, of all values
    outputs-x0 by node …        of the outputs minus a coordinate, if samples have their own meshes
    """

    def __init__(self, train: Dataset) -> None:
        self.moments: dict[str, Moments] = {}
        self._num_outputs = train.problem.num_outputs
        nodes = train.shared_coords
        self._of = _quantities(train.problem, nodes is not None, train.is_padded)
        if nodes is not None and not train.is_padded:
            self.moments["coords"] = Moments.of(nodes)
            self.moments["coords by node"] = Moments.of(nodes[None])

    def add(self, batch: Batch) -> None:
        for name, of in self._of.items():
            part = Moments.of(of(batch))
            known = self.moments.get(name)
            self.moments[name] = part if known is None else known.joined(part)

    def _of_outputs(self, name: str, by_node: bool) -> Moments:
        if name in self.moments:  # samples are padded, so that nodes have no statistics
            return self.moments[name]
        found = self.moments[f"{name} by node"]
        while found.mean.ndim > 1 and not by_node:
            found = found.over_first_axis()
        return found

    def covers(self, train: Dataset) -> bool:
        """Whether all that the conditioning of these samples needs is known."""
        return Statistics(train)._of.keys() <= self.moments.keys()

    def step_inputs(self, problem: Problem) -> tuple[Tensor, Tensor]:
        """Mean and deviation of each input of a step; a control has those over all frames."""
        found = self.moments["inputs"]
        if not problem.controls:
            return found.mean, found.deviation
        frames, num_controls = problem.control_frames, len(problem.controls)
        first, last = problem.static, problem.static + frames * num_controls
        assert isinstance(found.count, int), "inputs are filled where they are masked"
        controls = Moments(
            found.count,
            found.mean[first:last].unflatten(0, (frames, num_controls)),
            found.squares[first:last].unflatten(0, (frames, num_controls)),
        ).over_first_axis()
        joined = [
            torch.cat((whole[:first], of_controls.repeat(problem.history), whole[last:]))
            for whole, of_controls in (
                (found.mean, controls.mean),
                (found.deviation, controls.deviation),
            )
        ]
        return joined[0], joined[1]

    def outputs(self, conditioning: Conditioning, by_node: bool = False) -> Moments:
        """Of what a network with this conditioning has to learn."""
        if conditioning.reference == "last":
            return self.moments["increments"]
        positions = conditioning.positions or (None,) * self._num_outputs
        names = ["outputs" if axis is None else f"outputs-x{axis}" for axis in positions]
        found = [self._of_outputs(name, by_node) for name in names]
        count = found[0].count
        if not isinstance(count, int):
            counts = [torch.as_tensor(one.count)[..., c] for c, one in enumerate(found)]
            count = torch.stack(counts, dim=-1)
        return Moments(
            count,
            torch.stack([one.mean[..., c] for c, one in enumerate(found)], dim=-1),
            torch.stack([one.squares[..., c] for c, one in enumerate(found)], dim=-1),
        )


def _quantities(problem: Problem, has_shared_coords: bool, is_padded: bool) -> dict[str, Pass]:
    """The values to take moments of, by name."""
    plain = replace(problem, conditioning=Conditioning())
    outputs = {"outputs": plain}
    found: dict[str, Pass] = {"inputs": lambda batch: rows(batch.inputs, batch)}
    if not has_shared_coords or is_padded:
        found["coords"] = lambda batch: rows(batch.coords, batch)
    if not is_padded and not has_shared_coords:
        found["coords by node"] = lambda batch: batch.coords
    if problem.time == "rollout":
        last = replace(plain, conditioning=Conditioning("last"))
        found["increments"] = lambda batch: rows(deviations(last, batch), batch)
    elif not has_shared_coords or problem.conditioning.positions:
        for axis in range(problem.dimension):
            positions = problem.num_outputs * (axis,)
            conditioning = Conditioning(positions=positions)
            outputs[f"outputs-x{axis}"] = replace(plain, conditioning=conditioning)
    for name, of in outputs.items():
        if is_padded:
            found[name] = lambda batch, of=of: rows(deviations(of, batch), batch)  # type: ignore[misc]
        else:
            found[f"{name} by node"] = lambda batch, of=of: deviations(of, batch)  # type: ignore[misc]
    return found


def one_pass(data: Dataset, collectors: Iterable[Collector]) -> None:
    """Show all samples to the collectors."""
    collectors = list(collectors)
    for batch in data.batches(samples_at_once(data.problem)):
        for collector in collectors:
            collector.add(batch)


def samples_at_once(problem: Problem) -> int:
    """Samples of a batch of a pass."""
    num_values = sum(prod(shape) for shape in sample_shapes(problem).values())
    return max(1, min(SAMPLES_AT_ONCE, VALUES_AT_ONCE // num_values))


def statistics_of(train: Dataset) -> Statistics:
    """The statistics of training samples, computed once."""
    known: Statistics | None = train.derived.get("statistics")
    if known is None or not known.covers(train):
        train.derived["statistics"] = known = Statistics(train)
        one_pass(train, [known])
    return known


def known_part(problem: Problem, coords: Tensor, inputs: Tensor) -> Tensor | None:
    """The part (B, N, C_out) of the outputs that a sample itself holds: mesh, or newest frame."""
    if problem.conditioning.reference == "last":
        return inputs[..., -problem.num_outputs :]
    if not any(position is not None for position in problem.conditioning.positions):
        return None
    none = torch.zeros_like(coords[..., 0])
    columns = [none if p is None else coords[..., p] for p in problem.conditioning.positions]
    return torch.stack(columns, dim=-1)


def deviations(problem: Problem, batch: Batch) -> Tensor:
    """The targets (B, *T, N, C) without their known part."""
    targets = batch.targets.double()
    inputs = batch.inputs.double()
    if problem.conditioning.reference == "last":
        newest = inputs[:, None, :, -problem.num_outputs :]
        return torch.cat((newest, targets), dim=1).diff(dim=1)
    known = known_part(problem, batch.coords.double(), inputs)
    if known is None:
        return targets
    return targets - (known if problem.time == "steady" else known[:, None])


def rows(values: Tensor, batch: Batch) -> Tensor:
    """The channels (P, C) of all unmasked nodes at all times."""
    nodes = values.movedim(-2, 1)
    return (nodes if batch.mask is None else nodes[batch.mask]).flatten(0, -2)
