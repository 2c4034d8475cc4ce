"""Named dimensions, the inner form of users' data, and names for the axes of plain arrays.

Every reader returns an `xarray.Dataset` with these variables (samples and time may be missing):

    coords      (sample, axis_0, axis_1, ..., channel_coords)           node positions
    NAME        (sample, time_NAME, axis_0, axis_1, ..., channel_NAME)  a field
    NAME        (sample, channel_NAME)                                  scalars of the samples
    mask        (sample, axis_0, ...)                                   False where nothing is known
    NAME        (sample, time_NAME, channel_NAME)                       numbers of every frame
    times       (sample, time_times)                                    times of the frames
    lengths     (sample)                                                frames of each series
    split       (sample)                                                train, validation or test

Time and channel carry the field's name because fields may differ in their length. The coordinate
`channel_NAME` holds names of channels, the attribute `origin` the file, for messages, and the
attribute `notes` what had to be assumed.

Some formats and layouts name their axes (`cato.user_data.named`). For plain arrays `name_axes`
derives what they mean from the shapes: it looks for the interpretation of the coordinates that fits
the fields.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cato.benchmarks.contract import SPLITS
from cato.errors import InputError
from cato.problem import MIN_NODES
from cato.user_data.naming import (
    NO_TIMES,
    TIMES,
    Name,
    Naming,
    ReadRequest,
    natural_order,
)

if TYPE_CHECKING:
    import xarray  # imported where it is used: it costs every command half a second

SAMPLE, TIME, CHANNEL = "sample", "time", "channel"
EXTRA = ("mask", "split", "times", "lengths")  # Variables that are no fields.
MAX_DIMENSION = 3
MAX_CHANNELS = 4  # A last axis of this length is taken for channels where nothing says what it is.
LABELS = {
    "inputs": "input_names",
    "targets": "target_names",
    "scalars": "scalar_names",
    "parameters": "parameter_names",
    "controls": "control_names",
}
"""Arrays of the documented layout with the names of the channels of a field."""

Shape = tuple[int, ...]
Dims = tuple[str, ...]


def mesh_dims(num_axes: int) -> Dims:
    """Names of the mesh axes."""
    return tuple(f"axis_{axis}" for axis in range(num_axes))


def make_dataset(
    path: Path,
    naming: Naming,
    variables: Mapping[str, tuple[Dims, np.ndarray]],
    notes: Sequence[str] = (),
) -> "xarray.Dataset":
    """A dataset in the inner form.

    Of the given dimensions, time and channel get the field's name here, and a missing channel
    dimension is added. `naming` is resolved.
    """
    import xarray

    reserved = {SAMPLE, *EXTRA, *mesh_dims(MAX_DIMENSION)}
    reserved |= set() if naming.coords == ("coords",) else {"coords"}
    if taken := reserved.intersection(naming.fields):
        raise InputError(f"{path}: {min(taken)!r} cannot be the name of a field; rename it")
    named: dict[str, Any] = {}
    for name, (dims, values) in variables.items():
        if name not in EXTRA and CHANNEL not in dims:
            dims, values = (*dims, CHANNEL), values[..., None]
        named[name] = (tuple(f"{d}_{name}" if d in (TIME, CHANNEL) else d for d in dims), values)
    return xarray.Dataset(named, attrs={"origin": str(path), "notes": list(notes)})


def sample_variables(
    path: Path, arrays: Mapping[str, np.ndarray], count: int, mesh: Shape
) -> dict[str, tuple[Dims, np.ndarray]]:
    """The variables `mask`, `split` and `lengths`, where the file has these arrays."""
    variables: dict[str, tuple[Dims, np.ndarray]] = {}
    if "lengths" in arrays:
        lengths = np.atleast_1d(np.squeeze(arrays["lengths"]))
        if lengths.shape != (count,) or lengths.dtype.kind not in "iu":
            raise InputError(
                f"{path}: 'lengths' should be the number of frames of each of the {count} samples; "
                f"it is {lengths.dtype} {lengths.shape}"
            )
        variables["lengths"] = ((SAMPLE,), lengths)
    if "mask" in arrays:
        mask = arrays["mask"]
        if mask.shape not in ((count, *mesh), mesh):
            raise InputError(
                f"{path}: the mask should have the shape of the nodes, {mesh}, or with samples "
                f"{(count, *mesh)}; it is {mask.shape}"
            )
        dims = (SAMPLE, *mesh_dims(len(mesh)))[-mask.ndim :]
        by_sample = mask.reshape(-1, prod(mesh)).any(axis=1)
        if not by_sample.all():
            where = f", sample {by_sample.argmin()}" if mask.ndim > len(mesh) else ""
            raise InputError(f"{path}{where}: the mask is 0 at all nodes; remove it")
        variables["mask"] = (dims, mask)
    if "split" in arrays:
        values = np.atleast_1d(np.squeeze(arrays["split"]))
        numbers = values.dtype.kind in "fiu"
        words = [SPLITS[int(v)] if numbers and v in (0, 1, 2) else str(v) for v in values.tolist()]
        wrong = sorted(set(words) - set(SPLITS))
        if len(words) != count or wrong:
            such = f", such as {wrong[0]!r}" if wrong else ""
            raise InputError(
                f"{path}: 'split' should be train, validation or test (or 0, 1, 2) for each of the "
                f"{count} samples; it has {len(words)} entries{such}"
            )
        variables["split"] = ((SAMPLE,), np.array(words))
    return variables


@contextmanager
def parse_errors(what: object, kind: str) -> Iterator[None]:
    """Turn whatever a parser of a format raises on damaged bytes into an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{what} cannot be read as {kind}: {reason}") from None


# -- plain arrays ---------------------------------------------------------------------------------


def _no_storage(name: str) -> tuple[Shape | None, int]:
    raise NotImplementedError(name)


class Whole(NamedTuple):
    """The file that a window of samples is part of; it decides what axes mean, not the window.

    A window may have as many samples as a mesh has rows.
    """

    shapes: Mapping[str, Shape]
    cut: Mapping[str, int]  # The arrays that are cut, and the axis of each that counts samples.

    @property
    def num_samples(self) -> int:
        """Number of all samples."""
        return max((self.shapes[name][axis] for name, axis in self.cut.items()), default=0)


@dataclass(frozen=True)
class ArrayFile:
    """A file of named arrays, whose axes have names too where the format or layout has them."""

    path: Path
    shapes: Mapping[str, Shape]
    load: Callable[[str], np.ndarray]
    kind: str = ""  # Format or layout, for messages.
    dims: Mapping[str, Dims] = field(default_factory=dict)  # Names of the axes of every array.
    coords: tuple[str, ...] = ()  # Arrays that are coordinates.
    periodic: tuple[str, ...] = ()  # Axes that the file says are periodic.
    num_past: int = 1  # Frames from which forecasts start, by custom of the layout.
    notes: tuple[str, ...] = ()  # What reading it assumes.
    is_layout: bool = False  # Whether `kind` is a layout, which says what the fields are.
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Where a layout has each array in its file: in one place, or one for each sample."""
    has_only_results: bool = False  # Whether all fields are results of a solver.
    hint: str = ""  # What else could be named.
    read_part: Callable[[str, int, slice], np.ndarray] | None = None
    """Part of an array along an axis, where it can be read without the rest."""
    storage: Callable[[str], tuple[Shape | None, int]] = _no_storage
    """Shape of the chunks of an array, None if it has none, and its bytes in memory."""
    whole: Whole | None = None  # Of a window.

    def part(self, cut: Mapping[str, int], rows: slice) -> "ArrayFile":
        """As if these rows of some arrays, along these axes, were all."""

        def load(name: str) -> np.ndarray:
            if name not in cut:
                return self.load(name)
            assert self.read_part is not None
            return self.read_part(name, cut[name], rows)

        def cut_shape(name: str, shape: Shape) -> Shape:
            axis = cut[name]
            return (*shape[:axis], len(range(shape[axis])[rows]), *shape[axis + 1 :])

        shapes = {n: cut_shape(n, s) if n in cut else s for n, s in self.shapes.items()}
        return replace(self, shapes=shapes, load=load, whole=Whole(self.shapes, cut))

    def read(self, name: str) -> np.ndarray:
        """Read an array of any type."""
        with parse_errors(f"{self.path}: field {name!r}", self.kind):
            return self.load(name)

    def numbers(self, name: str) -> np.ndarray:
        """Read an array of real numbers; if it is missing, the error lists what the file has."""
        if name not in self.shapes:
            found = ", ".join(f"{n} {s}" for n, s in self.shapes.items()) or "nothing"
            raise InputError(
                f"{self.path} has no field {name!r}, only {found}; name the fields with --coords, "
                f"--inputs and --targets"
            )
        array = self.read(name)
        if array.dtype.kind not in "fiub":
            raise InputError(
                f"{self.path}: field {name!r} should be real numbers, but is {array.dtype}"
            )
        return array

    @property
    def groups_of_samples(self) -> list[str]:
        """Groups with the same arrays each, where all arrays that differ are in groups."""
        inner: dict[str, set[str]] = {}
        for path in self.shapes:
            group, _, name = path.rpartition("/")
            if group:
                inner.setdefault(group, set()).add(name)
        first = next(iter(inner.values()), set())
        is_alike = all(names == first for names in inner.values())
        if self.dims or len(inner) < 2 or not is_alike or set(inner) & set(SPLITS):
            return []
        return sorted(inner, key=natural_order)

    def group(self, name: str) -> "ArrayFile":
        """The arrays of a group, and those at the root, which all groups share."""
        inner = {n.removeprefix(f"{name}/"): n for n in self.shapes if n.startswith(f"{name}/")}
        paths = {n: n for n in self.shapes if "/" not in n} | inner
        shapes = {short: self.shapes[full] for short, full in paths.items()}
        read_part = self.read_part
        return ArrayFile(
            self.path,
            shapes,
            lambda short: self.read(paths[short]),
            self.kind,
            read_part=read_part and (lambda n, axis, rows: read_part(paths[n], axis, rows)),
            storage=lambda short: self.storage(paths[short]),
        )


def name_axes(file: ArrayFile, request: ReadRequest, has_samples: bool) -> "xarray.Dataset":
    """Read the fields and name their axes; `has_samples` says if the first one counts samples."""
    naming, is_layout = request.naming.within(file.shapes, request.truth), request.naming.is_layout
    fields = {name: file.numbers(name) for name in naming.fields}
    notes = list(file.notes)
    if not naming.coords and request.coords is None:
        shapes = {name: array.shape for name, array in fields.items()}
        nodes = unit_grid_of(file.path, naming, shapes, has_samples)
        request = replace(request, coords=nodes)
        notes.append(unit_grid_note(nodes.shape[:-1]))
    match = _match_mesh(file, replace(request, naming=naming), fields, has_samples)
    sample = (SAMPLE,) if match.is_per_sample else ()
    variables = {"coords": ((*sample, *mesh_dims(len(match.mesh)), CHANNEL), match.coords)}
    num_samples = match.num_samples if has_samples else None
    whole_shapes, num_all = dict(file.shapes), num_samples
    if file.whole is not None:
        whole_shapes, num_all = dict(file.whole.shapes), file.whole.num_samples
    series = series_of(naming, is_layout, whole_shapes, match.mesh, num_all)
    for name, array in fields.items():
        try:
            dims = series.get(name) or field_dims(whole_shapes[name], match.mesh, num_all)
        except InputError as error:
            raise InputError(f"{file.path}: field {name!r}: {error}") from None
        if name != "coords":  # positions that are also an input
            variables[name] = (dims, array)
    times = times_name(file, naming)
    if times and 1 <= len(file.shapes[times]) <= 1 + has_samples:
        dims = (*sample_dim(num_samples), TIME)[-len(file.shapes[times]) :]
        if dims[0] == TIME or file.shapes[times][0] == num_samples:
            variables["times"] = (dims, as_times(file.read(times), f"{file.path}: {times!r}"))
    extra = mask_of(file, naming)
    if has_samples:
        reads = {"split": file.read, "lengths": file.numbers}
        extra |= {name: read(name) for name, read in reads.items() if name in file.shapes}
    variables |= sample_variables(file.path, extra, match.num_samples, match.mesh)
    dataset = make_dataset(file.path, naming, variables, notes)
    for name, label in LABELS.items():
        if name in variables and label in file.shapes:
            words = [str(word) for word in np.atleast_1d(file.read(label)).tolist()]
            channel = f"{CHANNEL}_{name}"
            count = dataset.sizes[channel]
            if len(words) != count:
                message = f"{len(words)} names for the {count} channels of {name!r}"
                raise InputError(f"{file.path}: {message}")
            dataset = dataset.assign_coords({channel: words})
    return dataset


def mask_of(file: ArrayFile, naming: Naming) -> dict[str, np.ndarray]:
    """The mask of a file, True where there are values; empty if it has none."""
    names = [name for name in file.shapes if naming.is_mask(name)]
    if naming.mask and not names:
        raise InputError(
            f"{file.path} has no array {naming.mask.partition('=')[0]!r} that could be a mask, "
            f"only {', '.join(file.shapes)}"
        )
    if naming.mask and "mask" in file.shapes and names != ["mask"]:
        raise InputError(
            f"{file.path} has an array mask besides {names[0]!r}; leave out --data.mask to use it, "
            f"or rename it"
        )
    return {"mask": naming.valid(names[0], file.numbers(names[0]))} if names else {}


def unit_grid(mesh: Shape) -> np.ndarray:
    """Nodes (*mesh, D) of a uniform grid of the unit interval, square or cube."""
    axes = (np.linspace(0, 1, num_nodes) for num_nodes in mesh)
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


def unit_grid_note(mesh: Shape) -> str:
    """What is said of a unit grid."""
    return (
        f"no coordinates: taken to be on a uniform grid of {' × '.join(map(str, mesh))} nodes "
        f"from 0 to 1; if that is wrong, name them with --coords x,y"
    )


def unit_grid_of(
    path: Path, naming: Naming, fields: Mapping[str, Shape], has_samples: bool
) -> np.ndarray:
    """A unit grid on which all fields of these shapes have values.

    A short last axis is taken for channels, and axes before three mesh axes for frames.
    """
    frames = {name.field for name in (*naming.inputs, *naming.targets) if name.frames is not None}
    shapes = {name: shape[has_samples:] for name, shape in fields.items()}
    nodal = {name: shape for name, shape in shapes.items() if len(shape) > 1}
    nodal = nodal or {name: shape for name, shape in shapes.items() if shape}
    if not nodal:
        raise InputError(f"{path} has no field with values at nodes; name the targets: --targets p")
    first = next((n.field for n in naming.targets if n.field in nodal), next(iter(nodal)))
    shape, found = nodal[first], []
    for num_frames, num_channels in product((0, 1), (0, 1)):
        mesh = shape[num_frames : len(shape) - num_channels]
        fits = all(
            any((TIME in dims) >= (name in frames) for dims in nodal_dims(other, mesh))
            for name, other in nodal.items()
        )
        if fits and 1 <= len(mesh) <= MAX_DIMENSION and min(mesh) >= MIN_NODES:
            is_short = shape[-1] <= MAX_CHANNELS
            found.append((num_frames, num_channels != is_short, mesh))
    if not found:
        raise InputError(
            f"{path} has no coordinates, and its fields {shapes} are on no common grid; add an "
            f"array 'coords' of shape (*mesh, D) or (samples, *mesh, D), or name them with "
            f"--coords x,y"
        )
    return unit_grid(min(found)[-1])


def nodal_dims(shape: Shape, mesh: Shape) -> list[Dims]:
    """All meanings of the axes of one sample's field if it has values at the nodes."""
    return [
        (*time, *mesh_dims(len(mesh)), *channel)
        for time, channel in product(((), (TIME,)), ((), (CHANNEL,)))
        if len(shape) == len(time) + len(mesh) + len(channel)
        and shape[len(time) : len(time) + len(mesh)] == mesh
    ]


def field_dims(shape: Shape, mesh: Shape, num_samples: int | None = None) -> Dims:
    """The meaning of the axes of a field, without the sample axis if `num_samples` is None.

    With samples, a field is that of each sample, a scalar of each sample, or one for all samples.
    """
    sample = () if num_samples is None else (SAMPLE,)
    rest, has_samples = shape[len(sample) :], num_samples in (None, *shape[:1])
    options = [(*sample, *dims) for dims in nodal_dims(rest, mesh)] if has_samples else []
    if not options:
        options = [(*sample, *(CHANNEL,)[: len(rest)])] if has_samples and len(rest) <= 1 else []
        for_all = nodal_dims(shape, mesh) if sample else []
        options += for_all if any(TIME not in dims for dims in for_all) else []
    if len(options) == 1:
        return options[0]
    if options:
        found = " or ".join(f"({', '.join(dims)})" for dims in options)
        remedy = f"a field its channel axis, {(*shape, 1)}"
        if any(TIME in dims for dims in options):
            remedy = "it both axes, (frames, *mesh, channels)"
        raise InputError(f"shape {shape} on a mesh of {mesh} nodes may be {found}; give {remedy}")
    first = () if num_samples is None else (num_samples,)
    raise InputError(
        f"shape {shape} should be {(*first, *mesh)} or, with channels, {(*first, *mesh, 'C')}; in "
        f"time {(*first, 'T', *mesh, 'C')}; or scalars {first}, {(*first, 'P')}"
    )


def sample_dim(num_samples: int | None) -> Dims:
    """The axis of samples, if there is one."""
    return () if num_samples is None else (SAMPLE,)


def series_of(
    naming: Naming, is_layout: bool, shapes: Mapping[str, Shape], mesh: Shape, count: int | None
) -> dict[str, Dims]:
    """Inputs with numbers in every frame, (samples, frames) or (samples, frames, numbers).

    In the documented layout those are `controls`. Elsewhere they have as many frames as the
    targets, or the user named frames of them. Without samples `count` is None.
    """
    sample = sample_dim(count)
    num_frames = {
        shapes[name.field][len(sample)]
        for name in naming.targets
        if any(TIME in dims for dims in nodal_dims(shapes[name.field][len(sample) :], mesh))
    }
    found: dict[str, Dims] = {}
    for name in naming.inputs:
        shape = shapes[name.field]
        rest = shape[len(sample) :]
        if is_layout:
            is_series = name.field == "controls"
        else:
            is_series = name.frames is not None or bool(num_frames & {*rest[:1]})
        if is_series and len(rest) in (1, 2) and not nodal_dims(rest, mesh):
            found[name.field] = (*sample, TIME, CHANNEL)[: len(shape)]
    return found


def times_name(file: ArrayFile, naming: Naming) -> str:
    """The array with the times of the frames; empty if there is none, or they are not used."""
    if naming.times == NO_TIMES:
        return ""
    if naming.times:
        if naming.times not in file.shapes:
            raise InputError(
                f"{file.path} has no array {naming.times!r} of times, only "
                f"{', '.join(file.shapes)}; name it with --data.times, or give --data.times none"
            )
        return naming.times
    used = {*naming.fields, *naming.coords}
    return next((n for n in TIMES if n in file.shapes and file.shapes[n] and n not in used), "")


def as_times(values: np.ndarray, what: str) -> np.ndarray:
    """Times as numbers; dates become seconds."""
    if values.dtype.kind in "mM":
        return (values - values.reshape(-1)[0]) / np.timedelta64(1, "s")
    if values.dtype.kind not in "fiu":
        raise InputError(f"{what} should be numbers or dates, but are {values.dtype}")
    return values.astype(np.float64)


class MeshMatch(NamedTuple):
    """An interpretation of the coordinates."""

    coords: np.ndarray
    is_per_sample: bool  # Whether the first axis counts samples.
    num_samples: int = 1

    @property
    def mesh(self) -> Shape:
        return self.coords.shape[self.is_per_sample : -1]


def _match_mesh(
    file: ArrayFile, request: ReadRequest, fields: Mapping[str, np.ndarray], has_samples: bool
) -> MeshMatch:
    """The interpretation of the coordinates that fits the first field with values at nodes."""
    naming, candidates = request.naming, list(_candidates(file, request, has_samples))
    for name in (*naming.targets, *naming.inputs):
        shape = fields[name.field].shape
        fitting = _fitting(candidates, name, shape, has_samples)
        if not fitting:
            continue
        is_ambiguous = any(c.is_per_sample != fitting[0].is_per_sample for c in fitting)
        # A cloud, which has fewer axes than coordinates, is never periodic.
        if is_ambiguous and not naming.periodic:
            raise InputError(
                f"{file.path}: coordinates {fitting[0].coords.shape} with field {name.field!r} "
                f"{shape} may be one mesh for all samples or one for each; repeat the shared mesh "
                f"as (samples, *mesh, D), or name the frames of a time series, --targets "
                f"{name.field}[:]"
            )
        return fitting[0]._replace(num_samples=shape[0] if has_samples else 1)
    if not naming.targets:
        match = _match_scalars(request, list(fields.values()), candidates, has_samples)
        if match is not None:
            return match
    shapes = {name: file.shapes[name] for name in (*naming.coords, *naming.fields)}
    first = "samples, " if has_samples else ""
    raise InputError(
        f"{file.path}: the shapes {shapes} do not fit together; expected coordinates (*mesh, D)"
        f"{' or (samples, *mesh, D)' if has_samples else ''}, D at most {MAX_DIMENSION} and at "
        f"most D mesh axes, and fields ({first}*mesh, channels), in time ({first}frames, *mesh, "
        f"channels), or scalars ({first}values)"
    )


def _fitting(
    candidates: list[MeshMatch], name: Name, shape: Shape, has_samples: bool
) -> list[MeshMatch]:
    """Candidates on which a field has values at nodes; with frames if the user named frames."""
    found = [
        (c, dims)
        for c in candidates
        if not c.is_per_sample or shape[:1] == c.coords.shape[:1]
        if (dims := nodal_dims(shape[has_samples:], c.mesh))
    ]
    in_time = [c for c, dims in found if any(TIME in d for d in dims)]
    return in_time if name.frames is not None and in_time else [c for c, _ in found]


def _match_scalars(
    request: ReadRequest, scalars: list[np.ndarray], candidates: list[MeshMatch], has_samples: bool
) -> MeshMatch | None:
    """The candidate for inputs that are scalars of the samples, or for no inputs."""
    if not all(has_samples <= array.ndim <= 2 for array in scalars):
        return None
    counts = [len(array) for array in scalars] if has_samples else [1]
    num_nodes = None if request.coords is None else prod(request.coords.shape[:-1])
    # Prefer as many nodes as the known mesh has, then clouds, which have the fewest axes.
    for match in sorted(candidates, key=lambda c: (prod(c.mesh) != num_nodes, len(c.mesh))):
        num_meshes = len(match.coords) if match.is_per_sample else None
        count = counts[0] if counts else num_meshes or 1
        if num_meshes in (None, count):
            return match._replace(num_samples=count)
    return None


def _candidates(file: ArrayFile, request: ReadRequest, has_samples: bool) -> Iterator[MeshMatch]:
    """Interpretations of the coordinates: shared or per sample, most mesh axes first."""
    naming = request.naming
    if not naming.coords:
        assert request.coords is not None
        yield MeshMatch(request.coords, False)
        if naming.periodic:  # the file may repeat the first line of a periodic axis at its end
            ends = [(0, int(axis in naming.periodic)) for axis in range(request.coords.ndim - 1)]
            yield MeshMatch(np.pad(request.coords, [*ends, (0, 0)], mode="wrap"), False)
        return
    arrays = [file.numbers(name) for name in naming.coords]
    may_be_per_sample = has_samples and any(array.ndim > 1 for array in arrays)
    choices = (False, True)[: 1 + may_be_per_sample]
    if file.whole is not None:
        choices = (bool({*naming.coords} & file.whole.cut.keys()),)
    for coords in _stacked(file, naming.coords, arrays):
        for is_per_sample in choices:
            match = MeshMatch(coords, is_per_sample)
            fits = request.num_axes in (None, len(match.mesh))
            if fits and 1 <= len(match.mesh) <= coords.shape[-1] <= MAX_DIMENSION:
                yield match


def _stacked(file: ArrayFile, names: Dims, arrays: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Coordinates with components last: as they are, stacked, or from the axes of a grid."""
    if len(arrays) == 1:
        (array,) = arrays
        is_component = array.ndim == 1 or array.shape[-1] > MAX_DIMENSION
        yield array[..., None] if is_component else array
        return
    are_vectors = all(array.ndim == 1 for array in arrays)
    if are_vectors:
        yield np.stack(np.meshgrid(*arrays, indexing="ij"), axis=-1)
    if len({array.shape for array in arrays}) == 1:
        yield np.stack(arrays, axis=-1)
    elif not are_vectors:
        listed = ", ".join(f"{n} {a.shape}" for n, a in zip(names, arrays, strict=True))
        raise InputError(f"{file.path}: coordinates should have one shape, but have {listed}")
