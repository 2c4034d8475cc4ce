"""Attributes of a field that its prediction has too: unit, names, grid mapping."""

from collections.abc import Mapping
from typing import Any

import numpy as np

_OF_VALUES = (
    *("_FillValue", "missing_value", "scale_factor", "add_offset", "actual_range"),
    *("valid_min", "valid_max", "valid_range", "flag_values", "flag_masks", "flag_meanings"),
)
"""Attributes that tell how the values of the field itself are stored, and which occur."""


def inherited(attributes: Mapping[str, Any], what: str) -> dict[str, Any]:
    """What a field's prediction, band or error takes from the attributes of the field."""
    found = {
        name: value
        for name, value in attributes.items()
        if name not in _OF_VALUES and np.asarray(value).dtype.kind in "fiubSU"
    }
    if what != "predicted":
        found.pop("standard_name", None)
    if "long_name" in found:
        found["long_name"] = f"{found['long_name']} ({what})"
    return found
