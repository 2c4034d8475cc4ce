"""Nodes without values: land, solids, obstacles, sensors that failed.

NaN says so, or an array that is a mask. Targets keep their NaN, which no loss, error or statistic
counts (`Problem.has_gaps`). Inputs are filled with their mean over the other nodes of the sample,
and the first input becomes a mask, 1 at nodes with values and 0 at the others (`Problem.mask`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from cato.data.arrays import filled

if TYPE_CHECKING:
    from cato.user_data.samples import UserSample

MASK = "mask"
"""Name of the input that is the mask."""
Kind = Literal["", "inputs", "all"]


def hidden(sample: "UserSample", valid: np.ndarray) -> "UserSample":
    """With NaN where a named mask (*mesh) says that there are no values."""
    outside = ~valid[..., None]
    inputs = np.where(outside, np.nan, sample.inputs).astype(sample.inputs.dtype)
    targets = sample.targets
    if targets is not None:
        targets = np.where(outside, np.nan, targets).astype(targets.dtype)
    return replace(sample, inputs=inputs, targets=targets, valid=valid)


def kind_of(samples: "Sequence[UserSample]") -> Kind:
    """Whether the inputs need a mask, and if outputs have no values either where it is 0."""
    invalid = [~_valid(sample) for sample in samples]
    is_named = any(sample.valid is not None for sample in samples)
    if not is_named and not any(nodes.any() for nodes in invalid):
        return ""
    pairs = zip(samples, invalid, strict=True)
    truths = [s.targets[..., nodes, :] for s, nodes in pairs if s.targets is not None]
    return "all" if truths and all(np.isnan(values).all() for values in truths) else "inputs"


def with_mask(sample: "UserSample", names: Sequence[str]) -> "UserSample":
    """With filled inputs, and the mask as the first of them; `names` are those of the others."""
    inputs = filled(sample.inputs, _valid(sample), names, sample.origin)
    return replace(sample, inputs=inputs)


def _valid(sample: "UserSample") -> np.ndarray:
    """Nodes (*mesh) whose inputs all have values, and which a named mask does not hide."""
    valid: np.ndarray = ~np.isnan(sample.inputs).any(-1)
    return valid if sample.valid is None else valid & sample.valid
