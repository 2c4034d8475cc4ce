"""Which conditioning suits some data.

A network learns fastest if its inputs tell the samples apart and its outputs hold only what it must
learn. What suits depends on the data: whether node i of one sample is node i of the next, how much
of the outputs the mean of their node explains, how little a frame differs from the one before.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from cato.data.dataset import Dataset
from cato.data.normalise import why_not_corresponding
from cato.data.statistics import statistics_of
from cato.problem import Conditioning, Reference

MIN_EXPLAINED = 0.05
"""Share of the outputs' variance that the means of nodes must explain to be worth subtracting."""
MAX_REMAINDER = 0.25
"""An output is a position if less than this share of its deviation is left when the coordinate of
the node is subtracted."""


class Recommendation(NamedTuple):
    """A conditioning, and a sentence on each of its settings."""

    conditioning: Conditioning
    reasons: dict[str, str]


def recommend(train: Dataset) -> Recommendation:
    """The conditioning for some training samples."""
    obstacle = why_not_corresponding(train)
    reference, why_reference = _reference(train, obstacle)
    positions, why_positions = _positions(train, obstacle)
    mesh_inputs, why_mesh = _mesh_inputs(train, obstacle)
    return Recommendation(
        Conditioning(reference, positions, mesh_inputs),
        {"reference": why_reference, "positions": why_positions, "mesh_inputs": why_mesh},
    )


def _reference(train: Dataset, obstacle: str) -> tuple[Reference, str]:
    plain = _deviation(train, Conditioning())
    if train.problem.time == "rollout":
        share = _mean_ratio(_deviation(train, Conditioning("last")), plain)
        why = f"from one frame to the next they change by {share:.0%} of their deviation"
        if share < 1:
            return "last", f"outputs as increments: {why}"
        return "channel", f"outputs as they are, not as increments: {why}"
    if obstacle:
        return "channel", f"outputs about the mean of their channel: {obstacle}"
    explained = 1 - _mean_ratio(_deviation(train, Conditioning("node")), plain) ** 2
    why = f"the means of the nodes explain {explained:.0%} of their variance"
    if explained < MIN_EXPLAINED:
        return "channel", f"outputs about the mean of their channel: {why}"
    return "node", f"outputs about the mean of their node: {why}"


def _positions(train: Dataset, obstacle: str) -> tuple[tuple[int | None, ...], str]:
    """Outputs that follow a coordinate from mesh to mesh, or over the nodes of clouds."""
    problem = train.problem
    if problem.time == "rollout":
        return (), "no output is a position: a rollout predicts its inputs at later times"
    if train.shared_coords is not None:
        return (), "no output is a position: all samples share their mesh"
    reference: Reference = "channel" if obstacle else "node"
    plain = _deviation(train, Conditioning(reference))
    remainders = torch.stack(
        [
            _deviation(train, Conditioning(reference, problem.num_outputs * (axis,))) / plain
            for axis in range(problem.dimension)
        ]
    )
    least, axes = remainders.min(0)
    found = tuple(
        axis if is_position else None
        for axis, is_position in zip(axes.tolist(), least < MAX_REMAINDER, strict=True)
    )
    names = [name for name, axis in zip(problem.outputs, found, strict=True) if axis is not None]
    if not names:
        return (), "no output is a position"
    return found, f"{', '.join(names)} as mesh plus displacement"


def _mesh_inputs(train: Dataset, obstacle: str) -> tuple[bool, str]:
    if train.shared_coords is not None:
        return False, "no mesh inputs: all samples share their mesh"
    if obstacle:
        return False, f"no mesh inputs: {obstacle}"
    statistics = statistics_of(train).moments
    node, all_nodes = (statistics[name].deviation for name in ("coords by node", "coords"))
    share = float((node.square().mean(0) / all_nodes.square()).mean().sqrt())
    why = f"from sample to sample a node moves by {share:.2%} of the mesh"
    return True, f"displacement from the mean mesh as inputs: {why}"


def _deviation(train: Dataset, conditioning: Conditioning) -> Tensor:
    """Deviation of each output that a network has to learn, over samples, frames and nodes."""
    by_node = conditioning.reference == "node"
    around = statistics_of(train).outputs(conditioning, by_node)
    return around.flattened().deviation_over(0)[0] if by_node else around.deviation


def _mean_ratio(one: Tensor, other: Tensor) -> float:
    """Root of the mean over outputs of the squared ratio."""
    return float(torch.mean((one / other) ** 2).sqrt())
