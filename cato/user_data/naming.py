"""Which fields of a file are coordinates, inputs and targets.

Fields are named by `x,y` or, for some frames of a time series, `u[:10]`. Where nothing is named the
file is taken to have the documented layout: arrays `coords`, `inputs` and `targets`.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from cato.errors import InputError

_NAME = re.compile(r"([^\[\],]+?)(?:\[(-?\d*):(-?\d*)\])?")


@dataclass(frozen=True)
class Name:
    """A field, or some of its frames.

    Attributes:
        field: Its name in the file.
        frames: First frame and the one after the last, as in a Python slice; all where None.
    """

    field: str
    frames: tuple[int | None, int | None] | None = None

    @classmethod
    def parse(cls, text: str) -> "Name":
        """From `u` or `u[:10]`."""
        match = _NAME.fullmatch(text)
        if match is None:
            raise InputError(f"{text!r} is no field; name it as in the file, or frames as u[:10]")
        field, start, stop = match.groups()
        if start is None:
            return cls(field)
        return cls(field, (int(start) if start else None, int(stop) if stop else None))

    def __str__(self) -> str:
        if self.frames is None:
            return self.field
        start, stop = ("" if end is None else str(end) for end in self.frames)
        return f"{self.field}[{start}:{stop}]"


@dataclass(frozen=True)
class Naming:
    """What a user says of a file; no fields are named for the documented layout.

    Attributes:
        coords: Of the coordinates: one array with them last, or one array each.
        inputs: Of the inputs; none where the mesh is all the input.
        targets: Of the targets.
        periodic: Mesh axes, from 0, that close on themselves.
    """

    coords: tuple[str, ...] = ()
    inputs: tuple[Name, ...] = ()
    targets: tuple[Name, ...] = ()
    periodic: tuple[int, ...] = ()

    @classmethod
    def parse(
        cls, coords: str, inputs: str, targets: str, periodic: tuple[int, ...] = ()
    ) -> "Naming":
        """From comma-separated words."""
        if inputs and not targets:
            raise InputError("--inputs are named but no --targets; name both, or neither")
        return cls(
            _words(coords),
            tuple(map(Name.parse, _words(inputs))),
            tuple(map(Name.parse, _words(targets))),
            periodic,
        )

    @property
    def is_layout(self) -> bool:
        """Whether inputs and targets go by the documented layout."""
        return not self.targets

    def within(self, fields: Collection[str], truth: bool) -> "Naming":
        """The names to read of a file with these fields: the layout's where none are given.

        Args:
            fields: What the file has.
            truth: Whether targets must be there; where they need not, missing ones are left out.
        """
        coords = self.coords or (("coords",) if "coords" in fields else ())
        inputs, targets = self.inputs, self.targets
        if self.is_layout:
            inputs = tuple(Name(name) for name in ("inputs", "scalars") if name in fields)
            targets = (Name("targets"),)
        if not truth and not {name.field for name in targets} <= set(fields):
            targets = ()
        return replace(self, coords=coords, inputs=inputs, targets=targets)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
