"""What is written: its name, all of it, and one line where there is no room."""

import subprocess
import sys

import numpy as np
import pytest
import pyvista
import xarray

from cato.errors import InputError
from cato.user_data.arrays import save_arrays
from cato.user_data.axes import mesh_dims
from cato.user_data.mesh_write import copy_mesh
from cato.user_data.meshes import VTK
from cato.user_data.naming import Naming
from cato.user_data.write import default_target, require_writable


def test_names_of_folders_may_have_dots(tmp_path):
    folder = tmp_path / "sims_v1.2"
    folder.mkdir()
    np.savez(folder / "0.npz", coords=np.ones((9, 2)))
    assert default_target(folder) == tmp_path / "sims_v1.2-predicted"
    assert default_target(folder / "0.npz") == folder / "0-predicted.npz"
    for name in ("sims_v1.2-predicted", "out.3", "out"):
        require_writable(folder, tmp_path / name, num_frames=1)
    for name in ("out.npz", "out.VTU"):
        with pytest.raises(InputError, match="is a folder, and so will be"):
            require_writable(folder, tmp_path / name, num_frames=1)


@pytest.mark.parametrize("ending", VTK)
def test_copies_of_vtk_files_keep_everything(ending, tmp_path):
    image = pyvista.ImageData(dimensions=(5, 4, 3), spacing=(0.1, 0.2, 0.3))
    image["p"] = np.random.default_rng(0).random(60)
    image.cell_data["material"] = np.arange(24)
    image.field_data["speed"] = [1.5]
    file = {
        ".vts": image.cast_to_structured_grid,
        ".vtr": image.cast_to_rectilinear_grid,
        ".vtu": image.cast_to_unstructured_grid,
        ".vtp": lambda: pyvista.PolyData(image.points, deep=True),
    }.get(ending, lambda: image)()
    file.save(tmp_path / f"0{ending}")
    mesh = (60,) if ending in (".vtu", ".vtp") else (5, 4, 3)
    values = np.arange(120.0).reshape(*mesh, 2)
    dims = (*mesh_dims(len(mesh)), "channel_U")
    fields = xarray.Dataset({"U": (dims, values)})
    ((name, copy),) = copy_mesh(tmp_path / f"0{ending}", Naming(), fields, f"1{ending}").items()
    (tmp_path / name).write_bytes(copy)
    before, after = (pyvista.read(tmp_path / f"{i}{ending}") for i in (0, 1))
    expected = values.transpose(*reversed(range(len(mesh))), len(mesh)).reshape(60, 2)
    np.testing.assert_array_equal(after["U"], expected)
    del after.point_data["U"]
    assert type(after) is type(before)
    np.testing.assert_array_equal(after.points, before.points)
    assert after.n_cells == before.n_cells
    for kind in ("point_data", "cell_data", "field_data"):
        ours, theirs = getattr(after, kind), getattr(before, kind)
        assert {n: a.tolist() for n, a in ours.items()} == {
            n: a.tolist() for n, a in theirs.items()
        }


WITHOUT_ROOM = """
import resource, sys
from pathlib import Path
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.read import read_samples
from cato.user_data.write import write_predictions
from cato.errors import InputError

for source in map(Path, sys.argv[1:]):
    naming = Naming.parse("" if source.suffix.startswith(".vt") else "x,y", "", "p")
    samples = read_samples(source, ReadRequest(naming))
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**4, resource.RLIM_INFINITY))
    fields = {"p_predicted": [sample.targets for sample in samples.samples]}
    try:
        write_predictions(source.with_name(f"full{source.suffix}"), naming, samples, fields)
    except InputError as error:
        print(error)
"""


def test_no_room_for_predictions(tmp_path):
    """No file may grow beyond 10 kB. In a process of its own, for libraries that crash."""
    rng = np.random.default_rng(0)
    axes = {"x": np.arange(50.0), "y": np.arange(40.0)}
    arrays = axes | {"p": rng.random((3, 50, 40))}
    for ending in (".npz", ".mat", ".h5"):
        save_arrays(tmp_path / f"data{ending}", arrays)
    data = xarray.Dataset({"p": (("case", "x", "y"), arrays["p"])}, axes)
    data.to_netcdf(tmp_path / "data.nc", engine="h5netcdf")
    image = pyvista.ImageData(dimensions=(50, 40, 1))
    image["p"] = rng.random(2000)
    image.save(tmp_path / "data.vti")
    image.save(tmp_path / "data.vtk")
    image.cast_to_unstructured_grid().save(tmp_path / "data.vtu")
    (tmp_path / "folder.vts").mkdir()
    image.save(tmp_path / "folder.vts" / "0.vti")
    sources = sorted(tmp_path.iterdir())
    done = subprocess.run(
        [sys.executable, "-B", "-c", WITHOUT_ROOM, *map(str, sources)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(sources), lines
    for source, line in zip(sources, lines, strict=True):
        target = tmp_path / f"full{source.suffix}" / ("0.vti" if source.is_dir() else "")
        assert f"cannot write {target}: File too large" in line
    assert sorted(tmp_path.iterdir()) == sources
