"""Tables of points, CSV and Parquet: one row per point, one column per coordinate or field.

A column called sample or case counts samples; without it a file is one sample. A column called time
counts frames, which have the same points. Columns `U:0`, `U:1`, as ParaView writes them, are one
vector, and a unit in the header, `p [Pa]` or `p (Pa)`, is not part of the name. Columns that are
constant in every sample are scalars of the samples. If the points of all samples are those of one
grid, row by row, they are a grid.
"""

import io
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cato.errors import InputError
from cato.user_data.axes import ArrayFile, Dims, parse_errors
from cato.user_data.named import SAMPLES, TIMES
from cato.user_data.naming import Naming

if TYPE_CHECKING:
    import pandas
    import xarray

CSV, PARQUET = (".csv",), (".parquet", ".pq")
SUFFIXES = (*CSV, *PARQUET)
COUNTS = (*SAMPLES, "sample_id", "case_id", "run_id")
COORDINATES = (("x", "y", "z"), ("points",), ("x-coordinate", "y-coordinate", "z-coordinate"))
_HEADER = re.compile(r"\s*(.*?)\s*(?:\[([^\]]*)\]|\(([^)]*)\))?\s*")
_COMPONENT = re.compile(r"(.+):(\d+)")


def open_table(path: Path) -> ArrayFile:
    """Open a table."""
    return Table.read(path).arrays


def copy_table(
    source: Path, naming: Naming, fields: "xarray.Dataset", name: str
) -> dict[str, np.ndarray]:
    """The bytes of a copy of a table with more columns; cells without a value are empty."""
    table = Table.read(source)
    frame, rows = table.frame, table.rows
    for field, variable in fields.data_vars.items():
        original = str(field).rpartition("_")[0]
        values = np.asarray(variable.values, np.float64)
        values = values.reshape(1, *values.shape) if not table.has_samples else values
        here = rows
        if f"time_{field}" in variable.dims:
            chosen = next((n.frames for n in naming.targets if n.field == original), None)
            here = rows[:, slice(*(chosen or (None, None)))][:, : variable.sizes[f"time_{field}"]]
        elif "time" in table.axes:
            here = rows[:, -1]
        num_channels = variable.sizes.get(f"channel_{field}", 1)
        values = values.reshape(len(rows), -1, num_channels)
        if values.shape[1] == 1 < here[0].size:  # one number for the sample
            values = np.repeat(values, here[0].size, axis=1)
        known = here.reshape(len(rows), -1) >= 0
        unit = table.units.get(original, "")
        for channel in range(num_channels):
            column = np.full(len(frame), np.nan)
            column[here.reshape(len(rows), -1)[known]] = values[..., channel][known]
            frame[f"{field}{f':{channel}' if num_channels > 1 else ''}{unit}"] = column
    stream = io.BytesIO()
    if source.suffix.lower() in CSV:
        frame.to_csv(stream, index=False, sep=table.separator, decimal=table.decimal)
    else:
        _write_parquet(source, frame, stream)
    return {name: np.frombuffer(stream.getbuffer(), np.uint8)}


def _write_parquet(source: Path, frame: "pandas.DataFrame", stream: io.BytesIO) -> None:
    """Write a table with the metadata of its source, of the file and of its columns."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    old, new = parquet.read_schema(source), arrow.Table.from_pandas(frame, preserve_index=False)
    names = {name: name.rpartition("_")[0] or name for name in new.column_names}
    fields = []
    for field in new.schema:
        found = next((n for n in (field.name, names[field.name]) if n in old.names), None)
        fields.append(field.with_metadata(old.field(found).metadata) if found else field)
    metadata = {**(old.metadata or {}), **(new.schema.metadata or {})}
    parquet.write_table(new.cast(arrow.schema(fields, metadata)), stream)


@dataclass(frozen=True)
class Table:
    """A table, and where its rows are on the axes (sample, time, *mesh)."""

    path: Path
    frame: "pandas.DataFrame"
    separator: str = ","
    decimal: str = "."

    @classmethod
    def read(cls, path: Path) -> "Table":
        """Read the file."""
        import pandas

        with parse_errors(path, "a table"):
            if path.suffix.lower() in CSV:
                with path.open(encoding="utf-8-sig", errors="strict") as stream:
                    first, second = stream.readline(), stream.readline()
                separator = max(",;\t", key=first.count)
                # Where a comma is the decimal point, another sign is between the columns.
                has_commas = separator != "," and re.search(r"\d,\d", second)
                decimal = "," if has_commas else "."
                frame = pandas.read_csv(path, sep=separator, decimal=decimal)
                table = cls(path, frame, separator, decimal)
            else:
                try:
                    frame = pandas.read_parquet(path)
                    has_index = any(name is not None for name in frame.index.names)
                    table = cls(path, frame.reset_index() if has_index else frame)
                except ImportError:
                    raise InputError(
                        "Parquet files need pyarrow: pip install 'cato-pde[parquet]'"
                    ) from None
        if not len(table.frame) or not table.coords:
            raise InputError(
                f"{path} has columns {', '.join(map(str, table.frame.columns))}; a table needs "
                f"rows, and coordinates in columns called x, y, z"
            )
        return table

    @cached_property
    def columns(self) -> dict[str, list[str]]:
        """Columns of numbers, or of words called split, by name; vectors have several."""
        found: dict[str, list[str]] = {}
        for column in map(str, self.frame.columns):
            name = _HEADER.fullmatch(column).group(1)  # type: ignore[union-attr]
            if self.frame[column].dtype.kind not in "iufb" and name.lower() != "split":
                continue
            component = _COMPONENT.fullmatch(name)
            found.setdefault(component.group(1) if component else name, []).append(column)
        return found

    @property
    def units(self) -> dict[str, str]:
        """The end of the header of each column, which names its unit, by name."""
        headers = {name: columns[0] for name, columns in self.columns.items()}
        matches = {name: _HEADER.fullmatch(header) for name, header in headers.items()}
        return {n: headers[n][match.end(1) :] for n, match in matches.items() if match}

    @cached_property
    def coords(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        by_name = {name.lower(): name for name in self.columns}
        for names in COORDINATES:
            if names[0] in by_name:
                return tuple(by_name[name] for name in names if name in by_name)
        return ()

    def _column(self, words: tuple[str, ...]) -> str | None:
        """The column of one of these names, in any case but for letters: T is a temperature."""
        return next(
            (
                columns[0]
                for name, columns in self.columns.items()
                if name in words or (len(name) > 1 and name.lower() in words)
            ),
            None,
        )

    @property
    def has_samples(self) -> bool:
        """Whether a column counts samples."""
        return self._column(COUNTS) is not None

    @cached_property
    def nodes(self) -> np.ndarray:
        """Coordinates of every row."""
        return self.frame[[c for n in self.coords for c in self.columns[n]]].to_numpy(np.float64)

    @cached_property
    def rows(self) -> np.ndarray:
        """Indices of rows (sample, time, *mesh), −1 at the padding of clouds."""
        groups = self._groups(self._column(COUNTS), np.arange(len(self.frame)))
        time = self._column(TIMES)
        if time is not None:
            split = [self._groups(time, rows) for rows in groups]
            for index, frames in enumerate(split):
                first = self.nodes[frames[0]]
                if len(frames) != len(split[0]) or any(
                    not np.array_equal(self.nodes[rows], first) for rows in frames
                ):
                    raise InputError(
                        f"{self.path}, sample {index}: every time should have the same points in "
                        f"the same order, and every sample {len(split[0])} times"
                    )
            groups = [np.stack(frames) for frames in split]
        size = max(rows.shape[-1] for rows in groups)
        pad = [((0, 0),) * (rows.ndim - 1) + ((0, size - rows.shape[-1]),) for rows in groups]
        padded = [np.pad(r, p, constant_values=-1) for r, p in zip(groups, pad, strict=True)]
        stacked = np.stack(padded)
        mesh, is_reversed = self._grid(groups) or ((size,), False)
        rows = stacked.reshape(*stacked.shape[:-1], *mesh)
        if is_reversed:
            num_leading = rows.ndim - len(mesh)
            order = reversed(range(num_leading, rows.ndim))
            rows = rows.transpose(*range(num_leading), *order)
        return rows

    def _groups(self, column: str | None, rows: np.ndarray) -> list[np.ndarray]:
        """Rows by value of a column, in order of first appearance."""
        if column is None:
            return [rows]
        values = self.frame[column].to_numpy()[rows]
        _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        return [rows[inverse == group] for group in np.argsort(first)]

    def _grid(self, groups: list[np.ndarray]) -> tuple[tuple[int, ...], bool] | None:
        """Nodes along each axis, slowest first, and whether x is the fastest, if all samples are on
        one grid row by row.
        """
        nodes = [self.nodes[rows.reshape(-1, rows.shape[-1])[0]] for rows in groups]
        if any(not np.array_equal(part, nodes[0]) for part in nodes):
            return None
        found = nodes[0][:, np.ptp(nodes[0], axis=0) > 0]
        axes = [np.unique(column) for column in found.T]
        if len(axes) < 2 or np.prod([len(axis) for axis in axes]) != len(found):
            return None
        for is_reversed in (False, True):
            order = axes[::-1] if is_reversed else axes
            built = np.stack([a.ravel() for a in np.meshgrid(*order, indexing="ij")], axis=-1)
            if np.array_equal(built[:, ::-1] if is_reversed else built, found):
                return tuple(len(axis) for axis in order), is_reversed
        return None

    @property
    def axes(self) -> Dims:
        """Names of the axes of `rows`."""
        time = ("time",)[: self._column(TIMES) is not None]
        num_axes = self.rows.ndim - 1 - len(time)
        return ("sample", *time, *(f"point_{axis}" for axis in range(num_axes)))

    @cached_property
    def arrays(self) -> ArrayFile:
        """The columns on the axes of samples, times and points."""
        arrays: dict[str, np.ndarray] = {}
        dims: dict[str, Dims] = {}
        mesh = tuple(axis for axis in self.axes if axis.startswith("point"))
        first_frame = (slice(None), 0) if "time" in self.axes else (slice(None),)
        skipped = {self._column(COUNTS), self._column(TIMES)}
        flat = self.rows.reshape(len(self.rows), -1)
        coords: list[str] = []
        for name, columns in self.columns.items():
            if columns[0] in skipped:
                continue
            values = self.frame[columns].to_numpy()
            if name.lower() == "split":
                arrays["split"] = values[flat[:, 0], 0].astype(str)
                continue
            if name in self.coords:
                for index, column in enumerate(columns):
                    part = name if len(columns) == 1 else f"{name}:{index}"
                    coords.append(part)
                    arrays[part] = self.frame[column].to_numpy()[self.rows[first_frame]]
                    dims[part] = ("sample", *mesh)
                continue
            per_row = np.where(flat[..., None] >= 0, values[flat], values[flat[:, :1]])
            is_number = (per_row == per_row[:, :1]).all()
            kept, axes = (flat[:, 0], ("sample",)) if is_number else (self.rows, self.axes)
            arrays[name] = values[kept] if len(columns) > 1 else values[kept][..., 0]
            dims[name] = (*axes, "channel") if len(columns) > 1 else axes
        if (mask := self.rows[first_frame] >= 0).all():
            shared = all((arrays[name] == arrays[name][:1]).all() for name in coords)
            for name in coords if shared else ():
                arrays[name], dims[name] = arrays[name][0], mesh
        elif self.has_samples:
            arrays["mask"], dims["mask"] = mask, ("sample", *mesh)
        if not self.has_samples:
            for name, names in dims.items():
                if names[:1] == ("sample",):
                    arrays[name], dims[name] = arrays[name][0], names[1:]
        return ArrayFile(
            self.path,
            {name: array.shape for name, array in arrays.items()},
            arrays.__getitem__,
            "a table",
            dims,
            tuple(coords),
        )
