"""Which fields of a file are coordinates, inputs and targets.

Fields are named by `x,y`; `u[:10]` are some frames of a time series, `u[-1]` is one frame, without
an axis of time. Where nothing is named the file is taken to have the documented layout, arrays
`coords`, `inputs` and `targets`, or the names are guessed (`cato.user_data.guess`).
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from cato.errors import InputError

LAYOUT_INPUTS = ("inputs", "scalars", "parameters", "controls")
"""Arrays of the documented layout that are inputs."""
TIMES = ("times", "time", "t", "time_predicted", "t_predicted")  # Customary names of times.
NO_TIMES = "none"

_NAME = re.compile(r"([^\[\],]+?)(?:\[(?:(-?\d*):(-?\d*)|(-?\d+))\])?")


@dataclass(frozen=True)
class Name:
    """A field, or some of its frames: start and stop as in a Python slice, or a single one."""

    field: str
    frames: tuple[int | None, int | None] | None = None
    frame: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Name":
        """From `u`, `u[:10]` or `u[-1]`."""
        match = _NAME.fullmatch(text)
        if match is None:
            raise InputError(
                f"{text!r} is not a field name; name a field as in the file, or frames as u[:10]"
            )
        field, start, stop, frame = match.groups()
        if frame is not None:
            return cls(field, frame=int(frame))
        if start is None:
            return cls(field)
        return cls(field, (int(start) if start else None, int(stop) if stop else None))

    @property
    def is_whole(self) -> bool:
        """Whether it names no frames of the field."""
        return self.frames is None and self.frame is None

    def __str__(self) -> str:
        if self.frame is not None:
            return f"{self.field}[{self.frame}]"
        if self.frames is None:
            return self.field
        start, stop = ("" if end is None else str(end) for end in self.frames)
        return f"{self.field}[{start}:{stop}]"


@dataclass(frozen=True)
class Naming:
    """Names that the user gave; empty for the documented layout."""

    coords: tuple[str, ...] = ()  # One array with components last, or one array per component.
    inputs: tuple[Name, ...] = ()  # Empty if the mesh is the only input.
    targets: tuple[Name, ...] = ()
    periodic: tuple[int, ...] = ()  # Periodic mesh axes, counted from 0.
    time: str = "auto"  # rollout or conditioned, where the fields could be either.
    times: str = ""
    """The array with the times of the frames; that of a customary name if empty, or none."""
    mask: str = ""
    """The array that is not 0 at nodes with values; NAME=VALUE for one that has this value there.
    An array called mask by default."""

    @classmethod
    def parse(
        cls, coords: str, inputs: str, targets: str, periodic: tuple[int, ...] = ()
    ) -> "Naming":
        """From comma-separated words."""
        if inputs and not targets:
            raise InputError("--inputs given without --targets; name both, or neither")
        words, past, future = (
            [word.strip() for word in text.split(",") if word.strip()]
            for text in (coords, inputs, targets)
        )
        return cls(
            tuple(words), tuple(map(Name.parse, past)), tuple(map(Name.parse, future)), periodic
        )

    def words(self) -> dict[str, str]:
        """The names as comma-separated words, as `parse` takes them."""
        return {
            "coords": ",".join(self.coords),
            "inputs": ",".join(map(str, self.inputs)),
            "targets": ",".join(map(str, self.targets)),
        }

    def is_mask(self, name: str) -> bool:
        """Whether an array of this name says which nodes have values."""
        return name == (self.mask.partition("=")[0] or "mask")

    def valid(self, name: str, values: np.ndarray) -> np.ndarray:
        """Where this mask says that there are values."""
        word = self.mask.partition("=")[2]
        if not word:
            return values != 0
        try:
            return values == float(word)
        except ValueError:
            raise InputError(
                f"data.mask {self.mask!r} should be the name of an array that is not 0 where there "
                f"are values, or with a number, such as land=0"
            ) from None

    @property
    def is_layout(self) -> bool:
        """Whether inputs and targets follow the documented layout."""
        return not self.targets

    @property
    def fields(self) -> list[str]:
        """Names of the input and target fields, each once."""
        return list(dict.fromkeys(name.field for name in (*self.inputs, *self.targets)))

    def within(self, fields: Collection[str], truth: bool) -> "Naming":
        """Resolve the names for a file with these fields: the layout's where none are given.

        If `truth` is False, targets that the file does not have are dropped.
        """
        coords = self.coords or (("coords",) if "coords" in fields else ())
        inputs, targets = self.inputs, self.targets
        if self.is_layout:
            inputs = tuple(Name(name) for name in LAYOUT_INPUTS if name in fields)
            targets = (Name("targets"),)
        if not truth and not {name.field for name in targets} <= set(fields):
            targets = ()
        return replace(self, coords=coords, inputs=inputs, targets=targets)


@dataclass(frozen=True)
class ReadRequest:
    """What to read from a path."""

    naming: Naming
    truth: bool = True  # Whether targets are required.
    num_axes: int | None = None  # Number of mesh axes, where known; a cloud has one.
    coords: np.ndarray | None = None  # Nodes (*mesh, D) to use if the file has none.


def natural_order(text: str) -> list[tuple[int, str]]:
    """A key that sorts case_2 before case_10."""
    words = re.split(r"(\d+)", text)
    return [(int(w), "") if w.isdecimal() else (-1, w) for w in words]
