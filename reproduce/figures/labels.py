"""Labels next to marks, none on another label or mark."""

from collections.abc import Sequence

import numpy as np

_ANGLES = np.deg2rad([0, 180, 90, 270, 30, 150, 330, 210, 60, 120, 300, 240])
_GAP = 2.0
"""Free space around a label, in the unit of all arguments."""

Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""


def place_labels(
    marks: Sequence[tuple[float, float, float]], sizes: Sequence[tuple[float, float]], frame: Box
) -> list[Box]:
    """The box of every label: as near to its mark as possible, those named first the nearest.

    Args:
        marks: Centre and radius of each mark, say in pixels.
        sizes: Width and height of each label.
        frame: What the labels must not leave.
    """
    discs = [(x - r, y - r, x + r, y + r) for x, y, r in marks]
    placed: list[Box] = []
    for mark, size in zip(marks, sizes, strict=True):
        placed.append(_free_place(mark, size, frame, [*discs, *placed]))
    return placed


def _free_place(
    mark: tuple[float, float, float], size: tuple[float, float], frame: Box, taken: list[Box]
) -> Box:
    x, y, radius = mark
    half_width, half_height = size[0] / 2 + _GAP, size[1] / 2 + _GAP
    reach = np.hypot(frame[2] - frame[0], frame[3] - frame[1])
    for distance in np.arange(radius + 1, reach, half_height / 2):
        for angle in _ANGLES:
            # From the mark outwards to where the box just touches the circle of that distance.
            across = x + np.cos(angle) * (distance + half_width)
            up = y + np.sin(angle) * (distance + half_height)
            box = (across - half_width, up - half_height, across + half_width, up + half_height)
            inside = frame[0] <= box[0] and frame[1] <= box[1]
            inside = inside and box[2] <= frame[2] and box[3] <= frame[3]
            if inside and not any(overlap(box, other) for other in taken):
                return (box[0] + _GAP, box[1] + _GAP, box[2] - _GAP, box[3] - _GAP)
    raise AssertionError("no free place for a label: the frame is too small for all of them")


def overlap(a: Box, b: Box) -> bool:
    """Whether two boxes share an area."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
