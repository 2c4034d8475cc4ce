"""Files of every format, damaged at random, given to `cato inspect` and the published readers.

python -m tools.hostile.mutated_files 60 0        for 60 seconds, with seed 0
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import h5py
import numpy as np
import scipy.io

from cato.benchmarks.contract import Layout
from cato.cli import main
from cato.data.published_array import read_array
from cato.sandbox import parse
from tools.hostile.verdicts import Attack, run_attacks

S, H, W = 6, 7, 8
NUM_MESHES = 4  # Samples in files of their own.
EXTREMES = [0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**62, 2**63 - 1, 2**64 - 1]
NPY = Layout("a.npy", (None, H, W), {"train": slice(0, 4), "test": slice(4, 6)}, at_least=S)
MAT = replace(NPY, file="a.mat", name="p")


def campaign(seconds: float, seed: int, most: int | None = None) -> dict:
    """Damaged files of all formats in turn for `seconds`, or `most`; counts of the verdicts."""
    with tempfile.TemporaryDirectory() as folder:
        counts = run_attacks(attacks(Path(folder), seed), seconds, most)
    return counts | {"formats": len(FORMATS)}


def attacks(folder: Path, seed: int, formats: tuple[str, ...] = ()) -> Iterator[Attack]:
    """Endless attacks; each overwrites the file of the one before."""
    rng = np.random.default_rng(seed)
    sources = {name: write for name, write in FORMATS.items() if not formats or name in formats}
    wholes: dict[str, dict[Path, bytes]] = {}  # Contents by name of format and path.
    for name, write in sources.items():
        place = folder / f"case-{name.replace(' ', '-')}"
        place.mkdir()
        for number in range(NUM_MESHES if _is_sample(name) else 1):
            write(place / f"{number}.{name.split()[-1]}")
        path = place / f"0.{name.split()[-1]}"
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        wholes[name] = {file: file.read_bytes() for file in files}
    for number in count():
        for name, whole_files in wholes.items():
            changed = list(whole_files)[rng.integers(len(whole_files))] if number else None
            for file, whole in whole_files.items():
                file.write_bytes(mutated(whole, rng) if file == changed else whole)
            path = folder / f"case-{name.replace(' ', '-')}" / f"0.{name.split()[-1]}"
            yield f"{name}, seed {seed}, number {number}", *_attack(name, path)


def _is_sample(name: str) -> bool:
    """Whether each file of a format is one sample."""
    return name.split()[-1] in ("vti", "vts", "vtr", "vtu", "vtp", "vtk", "pvd", "vtm")


def mutated(whole: bytes, rng: np.random.Generator) -> bytes:
    """One or two random changes; half of them near the start, where the headers are."""
    data = bytearray(whole)
    for _ in range(rng.integers(1, 3)):
        rng.choice(MUTATIONS)(data, rng)
    return bytes(data)


def _where(data: bytearray, rng: np.random.Generator) -> int:
    end = len(data) if rng.random() < 0.5 else min(len(data), 1024)
    return int(rng.integers(0, max(1, end)))


def _flip(data: bytearray, rng: np.random.Generator) -> None:
    for _ in range(rng.integers(1, 7)):
        if data:
            data[_where(data, rng) % len(data)] ^= 1 << int(rng.integers(8))


def _noise(data: bytearray, rng: np.random.Generator) -> None:
    start, size = _where(data, rng), int(rng.integers(1, 200))
    data[start : start + size] = rng.bytes(size)


def _extreme(data: bytearray, rng: np.random.Generator) -> None:
    start, size = _where(data, rng), int(rng.choice([1, 2, 4, 8]))
    value = EXTREMES[rng.integers(len(EXTREMES))] % 2 ** (8 * size)
    data[start : start + size] = value.to_bytes(size, str(rng.choice(["little", "big"])))


def _digits(data: bytearray, rng: np.random.Generator) -> None:
    """A larger number in text, such as the headers of VTK and NumPy."""
    places = [i for i, byte in enumerate(data[:4096]) if chr(byte).isdigit()]
    if places:
        place = places[rng.integers(len(places))]
        data[place : place + 1] = b"9" * int(rng.integers(1, 19))


def _cut(data: bytearray, rng: np.random.Generator) -> None:
    del data[_where(data, rng) :]


def _remove(data: bytearray, rng: np.random.Generator) -> None:
    start = _where(data, rng)
    del data[start : start + int(rng.integers(1, 64))]


def _repeat(data: bytearray, rng: np.random.Generator) -> None:
    start, size = _where(data, rng), int(rng.integers(1, 300))
    data[start:start] = data[start : start + size]


def _zeros(data: bytearray, rng: np.random.Generator) -> None:
    start, size = _where(data, rng), int(rng.integers(1, 300))
    data[start : start + size] = bytes(size)


MUTATIONS: list[Callable[[bytearray, np.random.Generator], None]] = [
    *(_flip, _noise, _extreme, _digits, _cut, _remove, _repeat, _zeros),
]


# -- the formats ----------------------------------------------------------------------------------


def _arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    nodes = np.meshgrid(np.linspace(0, 1, H), np.linspace(0, 1, W), indexing="ij")
    fields = {name: 1 + rng.random((S, H, W)) for name in ("k", "p")}
    return {"x": nodes[0], "y": nodes[1], **fields}


def _write_h5(path: Path, **options: object) -> None:
    with h5py.File(path, "w") as file:
        for name, array in _arrays().items():
            file.create_dataset(name, data=array, **options)


def _write_mat73(path: Path) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in _arrays().items():
            file[name] = array.T


def _write_netcdf(path: Path) -> None:
    import xarray

    arrays = _arrays()
    data = xarray.Dataset({n: (("case", "x", "y"), arrays[n]) for n in ("k", "p")})
    data = data.assign_coords(x=arrays["x"][:, 0], y=arrays["y"][0])
    if path.suffix == ".cdf":
        data.to_netcdf(path, engine="scipy")
    else:
        data.to_netcdf(path, engine="h5netcdf", encoding={"p": {"zlib": True}})


def _write_vtk(path: Path, kind: str = "image", **options: object) -> None:
    import pyvista

    mesh = pyvista.ImageData(dimensions=(H, W, 1))
    rng = np.random.default_rng(0)
    for name in ("k", "p"):
        mesh[name] = 1 + rng.random(mesh.n_points)
    if kind == "structured":
        mesh = mesh.cast_to_structured_grid()
    elif kind == "rectilinear":
        mesh = mesh.cast_to_rectilinear_grid()
    elif kind == "unstructured":
        mesh = mesh.cast_to_unstructured_grid()
    elif kind == "surface":
        mesh = mesh.extract_surface(algorithm=None)
    mesh.save(path, **options)


def _write_list(path: Path, words: str) -> None:
    """A file that lists another one, which holds the mesh."""
    part = path.with_name(f"part-{path.stem}.vti")
    _write_vtk(part)
    path.write_text(words.format(part.name))


def _write_tensors(path: Path) -> None:
    import torch

    torch.save({name: torch.from_numpy(array) for name, array in _arrays().items()}, path)


def _write_table(path: Path) -> None:
    import pandas

    arrays = {name: np.broadcast_to(array, (S, H, W)) for name, array in _arrays().items()}
    sample = np.broadcast_to(np.arange(S)[:, None, None], (S, H, W))
    columns = {"sample": sample, **arrays}
    table = pandas.DataFrame({name: array.ravel() for name, array in columns.items()})
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)


def _write_zarr(path: Path) -> None:
    import zarr

    group = zarr.open_group(path, mode="w")
    for name, array in _arrays().items():
        group.create_array(name, data=array)


PVD = """<VTKFile type="Collection" version="0.1"><Collection>
<DataSet timestep="0" part="0" file="{}"/></Collection></VTKFile>"""
VTM = """<VTKFile type="vtkMultiBlockDataSet" version="1.0"><vtkMultiBlockDataSet>
<DataSet index="0" name="a" file="{}"/></vtkMultiBlockDataSet></VTKFile>"""

FORMATS: dict[str, Callable[[Path], None]] = {
    "npz": lambda path: np.savez(path, **_arrays()),
    "compressed npz": lambda path: np.savez_compressed(path, **_arrays()),
    "h5": _write_h5,
    "compressed h5": partial(_write_h5, chunks=True, compression="gzip"),
    "mat": lambda path: scipy.io.savemat(path, _arrays()),
    "compressed mat": lambda path: scipy.io.savemat(path, _arrays(), do_compression=True),
    "v7.3 mat": _write_mat73,
    "nc": _write_netcdf,
    "v3 cdf": _write_netcdf,
    "vti": _write_vtk,
    "vts": partial(_write_vtk, kind="structured"),
    "vtr": partial(_write_vtk, kind="rectilinear"),
    "vtu": partial(_write_vtk, kind="unstructured"),
    "vtp": partial(_write_vtk, kind="surface"),
    "vtk": partial(_write_vtk, kind="unstructured"),
    "text vtk": partial(_write_vtk, kind="structured", binary=False),
    "text vtu": partial(_write_vtk, kind="unstructured", binary=False),
    "pvd": partial(_write_list, words=PVD),
    "vtm": partial(_write_list, words=VTM),
    "pt": _write_tensors,
    "csv": _write_table,
    "parquet": _write_table,
    "zarr": _write_zarr,
    "published npy": lambda path: np.save(path, _arrays()["p"]),
    "published mat": lambda path: scipy.io.savemat(path, _arrays()),
    "published v7.3 mat": _write_mat73,
}
"""Writers by name; its last word is the suffix."""


def _attack(name: str, path: Path) -> tuple[Callable[..., object], tuple[object, ...]]:
    if name == "published npy":
        return read_array, (path, NPY)
    if name.startswith("published"):
        return read_in_child, (path,)
    is_sample = _is_sample(name)
    words = ["--inputs", "k", "--targets", "p", "--json"]
    coords = [] if is_sample else ["--coords", "x,y"]
    return main, (["inspect", str(path.parent if is_sample else path), *coords, *words],)


def read_in_child(path: Path) -> None:
    """A variable of a MATLAB file in the published layout."""
    parse(read_array, [path], MAT, imports=())


if __name__ == "__main__":
    print(campaign(float(sys.argv[1]), int(sys.argv[2])))
