"""Files in other layouts are read as what went in, and predictions go back into them."""

import re
import shlex
import shutil
from pathlib import Path

import h5py
import layouts
import numpy as np
import pytest
import pyvista
import torch
import xarray

from cato.cli import main
from cato.errors import InputError
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.read import complete_naming, fingerprint, read_samples
from cato.user_data.samples import recognise
from cato.user_data.write import default_target, write_predictions

NAMES = {
    "netcdf_cf": ("air", "sea"),
    "vtk_cells": ("load", "stress"),
    "cgns": ("", "Pressure"),
    "paraview_csv": ("", "U,p"),
}
"""Inputs and targets where nothing can be guessed."""


def opened(name, folder):
    """The path of a layout, the names used, notes about guesses, and the samples."""
    path = getattr(layouts, f"write_{name}")(folder)
    naming, notes = complete_naming(path, Naming.parse("", *NAMES.get(name, ("", ""))))
    samples = read_samples(path, ReadRequest(naming))
    return path, naming, [*notes, *samples.notes], samples


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_pdebench_flow(dimension, tmp_path):
    path = layouts.write_cfd(tmp_path, dimension)
    naming, notes = complete_naming(path, Naming())
    samples = read_samples(path, ReadRequest(naming))
    problem = recognise(samples)
    assert (problem.geometry, problem.shape) == ("grid", (5, 6, 4)[:dimension])
    assert (problem.time, problem.num_steps) == ("rollout", layouts.T - 2)
    assert "layout of PDEBench" in notes[-1]
    pressure = problem.outputs.index("pressure")
    with h5py.File(path) as file:
        np.testing.assert_array_equal(
            samples.samples[3].targets[..., pressure], file["pressure"][3, 2:]
        )
        np.testing.assert_array_equal(
            samples.samples[0].coords[(slice(None), *[0] * (dimension - 1), 0)],
            file["x-coordinate"],
        )


def test_pdebench_with_many_frames_and_without_coordinates(tmp_path):
    _, naming, _, samples = opened("pdebench_burgers", tmp_path)
    assert naming.words()["inputs"] == "tensor[:10]"
    assert samples.num_frames == 20
    _, naming, notes, samples = opened("incompressible", tmp_path)
    assert naming.words()["targets"] == "particles[2:],velocity[2:]"
    assert any("uniform grid of 6 × 7 nodes" in note for note in notes)
    assert any("does not use force" in note for note in notes)


def test_pdebench_groups_are_samples(tmp_path):
    path, _, _, samples = opened("pdebench_diffusion_reaction", tmp_path)
    assert len(samples) == layouts.S
    with h5py.File(path) as file:
        expected = file["0007/data"][2:]
    np.testing.assert_array_equal(samples.samples[7].targets, expected)
    with h5py.File(path, "a") as file:
        file["0007/grid/x"][2] = 9
    with pytest.raises(InputError, match="0007/grid/x differs from 0000/grid/x"):
        read_samples(path, ReadRequest(Naming.parse("", "data[:2]", "data[2:]")))


def test_pdebench_darcy_is_steady(tmp_path):
    path, naming, _, samples = opened("pdebench_darcy", tmp_path)
    assert naming.words() == {"coords": "", "inputs": "nu", "targets": "tensor"}
    assert samples.time == "steady"
    with h5py.File(path) as file:
        np.testing.assert_array_equal(samples.samples[5].targets[..., 0], file["tensor"][5, 0])


def test_the_well(tmp_path):
    path, _, notes, samples = opened("the_well", tmp_path)
    problem = recognise(samples)
    assert (problem.time, problem.num_steps) == ("rollout", 6)
    assert problem.periodic == (True, False)
    assert [s.split for s in samples.samples] == ["train"] * 6 + ["validation"] * 3 + ["test"] * 3
    assert "does not use profile, Reynolds" in notes[0] or "does not use profile" in notes[1]
    with h5py.File(path / "data" / "valid" / "shear_Re_3e2.hdf5") as file:
        velocity = file["t1_fields/velocity"][1, 4:]
    np.testing.assert_array_equal(samples.samples[7].targets[..., 1:3], velocity)
    # What does not vary along an axis, and numbers of a file, are inputs if asked for.
    named = Naming.parse("", "profile,Reynolds", "density[-1]")
    some = read_samples(path, ReadRequest(named)).samples[6]
    assert (some.inputs[..., 0] == some.inputs[:, :1, 0]).all()
    assert (some.inputs[..., 1] == 300).all()


def test_tensors_have_no_pickle(tmp_path):
    path, _, notes, samples = opened("tensors", tmp_path)
    assert any("uniform grid" in note for note in notes)
    content = torch.load(path, weights_only=True)
    np.testing.assert_array_equal(samples.samples[3].targets[..., 0], content["y"][3])
    torch.save({"x": content["x"][:, None], "y": content["y"][:, None]}, tmp_path / "first.pt")
    naming, _ = complete_naming(tmp_path / "first.pt", Naming())
    again = read_samples(tmp_path / "first.pt", ReadRequest(naming))
    assert any("second axis of x is taken for channels" in note for note in again.notes)
    np.testing.assert_array_equal(again.samples[3].inputs, samples.samples[3].inputs)
    torch.save({"x": Path("x")}, tmp_path / "bad.pt")
    with pytest.raises(InputError, match=r"bad.pt cannot be read as tensors without pickle"):
        complete_naming(tmp_path / "bad.pt", Naming())


def test_climate_conventions(tmp_path):
    path, naming, notes, samples = opened("netcdf_cf", tmp_path)
    lat, _, _, sea = layouts.climate()
    assert any("degrees" in note for note in notes)
    np.testing.assert_allclose(samples.samples[0].coords[:, 0, 0], np.deg2rad(lat), rtol=1e-6)
    np.testing.assert_allclose(samples.samples[2].targets[..., 0], sea[2], atol=6e-4)  # packed
    with pytest.raises(InputError, match=r"--inputs air --targets sea"):
        complete_naming(path, Naming())
    with xarray.open_dataset(path) as data:
        data.load()
    data["sea"][0, 0, 0] = np.nan
    data[["sea"]].to_netcdf(tmp_path / "land.nc", engine="h5netcdf")
    land = read_samples(tmp_path / "land.nc", ReadRequest(Naming.parse("", "", "sea")))
    assert np.isnan(land.samples[0].targets[0, 0, 0])  # a fill value, which training refuses
    assert naming.words()["targets"] == "sea"


def test_zarr_with_and_without_names(tmp_path):
    _, naming, _, samples = opened("zarr", tmp_path)
    assert naming.words()["inputs"] == "u[:1]"
    assert samples.samples[0].targets.shape == (layouts.T - 1, 9, 1)
    path, naming, notes, samples = opened("plain_zarr", tmp_path)
    assert (naming.words()["inputs"], naming.words()["targets"]) == ("a", "u")
    assert any("uniform grid of 6 × 7" in note for note in notes)
    before = fingerprint(path)
    (metadata,) = path.glob("a/.zarray")
    metadata.write_text(
        metadata.read_text().replace('"filters": null', '"filters": [{"id": "pickle"}]')
    )
    assert fingerprint(path) != before
    with pytest.raises(InputError, match=r"\.zarray asks for pickle"):
        complete_naming(path, Naming())


def test_cell_data_are_at_the_centres(tmp_path):
    path, _, notes, samples = opened("vtk_cells", tmp_path)
    assert any("load is point data: averaged to the cells" in note for note in notes)
    sample = samples.samples[3]
    np.testing.assert_allclose(sample.targets[..., 0], 4 * sample.coords[..., 0], rtol=1e-5)
    np.testing.assert_allclose(sample.inputs[..., 0], sample.coords[..., 0] + 3, rtol=1e-5)
    with pytest.raises(InputError, match=r"load .*, stress .*for example: cato train"):
        complete_naming(path, Naming())


def test_series_and_blocks(tmp_path):
    path, naming, _, samples = opened("pvd", tmp_path)
    assert len(samples) == layouts.S
    assert naming.words()["targets"] == "T[1:]"
    x, y = np.moveaxis(samples.samples[2].coords, -1, 0)
    expected = 300 + np.exp(-0.3) * np.sin(3 * x + 2) * np.cos(2 * y)
    np.testing.assert_allclose(samples.samples[2].targets[2, ..., 0], expected, rtol=1e-6)
    before = fingerprint(path)
    part = path / "case_2" / "case_2_3.vti"
    part.write_bytes(part.read_bytes() + b" ")
    assert fingerprint(path) != before
    *_, samples = opened("multiblock", tmp_path)
    assert samples.inputs == ("speed",)
    sample = samples.samples[4]
    np.testing.assert_allclose(sample.targets[..., 0], 5 * sample.coords[..., 0], rtol=1e-6)


def test_openfoam_cases(tmp_path):
    path, naming, notes, samples = opened("openfoam", tmp_path)
    assert naming.words()["targets"] == "U,p"
    assert any("steady OpenFOAM case" in note for note in notes)
    assert any("inlet, outlet, walls" in note for note in notes)
    x, y = np.moveaxis(samples.samples[3].coords, -1, 0)
    np.testing.assert_allclose(
        samples.samples[3].targets[..., 3], 16 * (1 - x) + 20 * y, rtol=1e-5
    )  # the last time
    named = Naming.parse("", "inlet/U", "p")
    sample = read_samples(path, ReadRequest(named)).samples[11]
    assert (sample.inputs == [12, 0, 0]).all()
    with pytest.raises(InputError, match="walls/p is not uniform"):
        read_samples(path, ReadRequest(Naming.parse("", "walls/p", "U")))
    patch = read_samples(path, ReadRequest(Naming.parse("", "inlet/U", "inlet/p"))).samples[2]
    assert patch.mesh == (layouts.NY,)
    # A case that is not solved yet: nodes are where the targets would be.
    unknown = ReadRequest(Naming.parse("", "inlet/U", "T"), truth=False)
    assert read_samples(path, unknown).samples[2].mesh == (layouts.NX * layouts.NY,)
    (tmp_path / "again").mkdir()
    *_, samples = opened("transient_openfoam", tmp_path / "again")
    assert (samples.time, samples.num_frames) == ("rollout", 2)


def test_exodus_and_cgns(tmp_path):
    *_, samples = opened("exodus", tmp_path)
    x, y = np.moveaxis(samples.samples[4].coords, -1, 0)
    np.testing.assert_allclose(samples.samples[4].targets[0, :, 0], (5 * x + y + 1) / 2, rtol=1e-6)
    *_, samples = opened("cgns", tmp_path)
    x, y = np.moveaxis(samples.samples[4].coords, -1, 0)
    np.testing.assert_allclose(samples.samples[4].targets[:, 0], 5 * x + y, rtol=1e-6)


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_tables_of_clouds(name, tmp_path):
    *_, samples = opened(name, tmp_path)
    assert (samples.inputs, samples.outputs) == (("speed",), ("p",))
    table = layouts.table()
    rows = table[table["case"] == 5]
    sample = samples.samples[5]
    assert sample.mesh == (25,)
    np.testing.assert_allclose(sample.coords, rows[["x [m]", "y [m]"]])
    np.testing.assert_allclose(sample.targets[:, 0], rows["p [Pa]"])


def test_tables_of_grids_and_of_frames(tmp_path):
    path, _, _, samples = opened("paraview_csv", tmp_path)
    problem = recognise(samples)
    assert (problem.geometry, problem.outputs) == ("grid", ("U_1", "U_2", "U_3", "p"))
    nodes = samples.samples[3].coords
    np.testing.assert_allclose(samples.samples[3].targets[..., 3], nodes.sum(-1) + 3, rtol=1e-6)
    lines = ["sample,time,x,y,u"]
    for i, t, x in np.ndindex(4, 3, 5):
        lines.append(f"{i},{t},{x},{x * x},{10 * i + t + 0.1 * x}")
    (tmp_path / "frames.csv").write_text("\n".join(lines))
    naming, _ = complete_naming(tmp_path / "frames.csv", Naming())
    samples = read_samples(tmp_path / "frames.csv", ReadRequest(naming))
    assert (samples.time, samples.num_frames, path.name) == ("rollout", 2, "slices")
    np.testing.assert_allclose(samples.samples[3].targets[1, :, 0], 32 + 0.1 * np.arange(5))
    (tmp_path / "frames.csv").write_text("\n".join(lines[:-1]))
    with pytest.raises(InputError, match="every time should have the same points"):
        complete_naming(tmp_path / "frames.csv", Naming())


@pytest.mark.parametrize(
    "name", [*layouts.WRITERS, "plain_zarr", "multiblock", "paraview_csv", "transient_openfoam"]
)
def test_predictions_go_back_into_the_layout(name, tmp_path):
    """The truth as the prediction: the copy, read by its name, has it again."""
    path, naming, _, samples = opened(name, tmp_path)
    fields = {}
    for target in naming.targets:
        channels = [
            i
            for i, output in enumerate(samples.outputs)
            if output == target.field or output[: output.rfind("_")] == target.field
        ]
        fields[f"{target.field}_predicted"] = [s.targets[..., channels] for s in samples.samples]
    target = default_target(path)
    write_predictions(target, naming, samples, fields)
    if name == "tensors":  # like all plain arrays, only nodes and fields
        assert set(torch.load(target, weights_only=True)) == {"coords", "y_predicted"}
    for initial in target.glob("*/0") if name == "transient_openfoam" else ():
        shutil.rmtree(initial)  # the time that is not predicted
    again = read_samples(target, ReadRequest(Naming.parse("", "", ",".join(fields))))
    assert len(again) == len(samples)
    for ours, theirs in zip(again.samples, samples.samples, strict=True):
        np.testing.assert_allclose(ours.coords, theirs.coords, rtol=1e-6)
        has_past = len(ours.targets) > len(theirs.targets)  # NaN, as those are not predicted
        found = ours.targets[-len(theirs.targets) :] if has_past else ours.targets
        if theirs.targets.ndim > ours.targets.ndim:  # a single frame has no axis in a mesh
            found = ours.targets
        np.testing.assert_allclose(found.squeeze(), theirs.targets.squeeze(), rtol=1e-6, atol=1e-6)


def test_units_and_kinds_of_data_are_kept(tmp_path):
    for name in ("netcdf_cf", "csv", "vtk_cells", "openfoam"):
        (tmp_path / name).mkdir()
        path, naming, _, samples = opened(name, tmp_path / name)
        field = naming.targets[0].field
        width = 3 if field == "U" else 1
        values = {f"{field}_predicted": [s.targets[..., :width] for s in samples.samples]}
        write_predictions(default_target(path), naming, samples, values)
    with xarray.open_dataset(tmp_path / "netcdf_cf" / "climate-predicted.nc") as data:
        assert data["sea_predicted"].attrs["units"] == "K"
        assert data["sea_predicted"].attrs["long_name"] == "sea surface (predicted)"
        assert data["sea"].encoding["dtype"] == np.int16  # still packed
    assert "p_predicted [Pa]" in (tmp_path / "csv" / "probes-predicted.csv").read_text()
    plate = pyvista.read(tmp_path / "vtk_cells" / "plates-predicted" / "plate_2.vtu")
    np.testing.assert_allclose(plate.cell_data["stress_predicted"], plate.cell_data["stress"])
    case = tmp_path / "openfoam" / "foam-predicted" / "case_2"
    text = (case / "200" / "U_predicted").read_text()
    assert "dimensions [0 1 -1 0 0 0 0];" in text
    assert "frontAndBack { type empty; }" in text
    reader = pyvista.OpenFOAMReader(case / "system" / "controlDict")
    reader.set_active_time_value(200)
    cells = reader.read()["internalMesh"].cell_data
    np.testing.assert_allclose(cells["U_predicted"], cells["U"], rtol=1e-5)


PAGE = Path(__file__).parents[2] / "docs" / "layouts.md"
BLOCK = re.compile(r"^```(bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = {
    section.split("\n", 1)[0]: BLOCK.findall(section)
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
}
USED = {
    "PDEBench": (
        "pdebench_burgers",
        "pdebench_cfd",
        "pdebench_darcy",
        "pdebench_diffusion_reaction",
    ),
    "The Well": ("the_well",),
    "PyTorch tensors": ("tensors",),
    "NetCDF with CF conventions": ("netcdf_cf",),
    "Zarr": ("zarr",),
    "VTK cell data": ("vtk_cells",),
    "A `.pvd` series for each sample": ("pvd",),
    "OpenFOAM": ("openfoam",),
    "Exodus and CGNS": ("cgns", "exodus"),
    "Tables": ("csv", "parquet"),
}
SMALL = ["--scale", "smoke", "--model.width", "8", "--model.depth", "1", "--train.steps", "2"]


def test_every_section_has_its_files():
    assert set(USED) == set(EXAMPLES)
    assert {name for names in USED.values() for name in names} == set(layouts.WRITERS)


@pytest.mark.parametrize("section", USED)
def test_commands_of_the_page(section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in USED[section]:
        layouts.WRITERS[name](tmp_path)
    lines = "".join(text for _, text in EXAMPLES[section]).splitlines()
    for line in lines:
        name, *words = shlex.split(line)
        assert name == "cato"
        small = [*SMALL, "--train.accelerator", "cpu"] if words[0] == "train" else []
        main([*words, *small])
    written = [path for path in tmp_path.iterdir() if "-predicted" in path.name]
    assert len(written) == sum(line.startswith("cato predict") for line in lines)
