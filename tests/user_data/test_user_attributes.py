"""Predictions read back by the libraries of each format: units, attributes, and where axes are."""

import gzip

import h5py
import layouts
import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pyvista
import torch
import xarray
import zarr
from vtkmodules.vtkCommonCore import vtkDataArray

from cato.user_data.attributes import inherited
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.read import complete_naming, read_samples
from cato.user_data.write import default_target, write_predictions


def predicted(path, inputs="", targets="", coords=""):
    """Write the truth as prediction and, negated, as error; returns the new path."""
    naming, _ = complete_naming(path, Naming.parse(coords, inputs, targets))
    samples = read_samples(path, ReadRequest(naming))
    fields = {}
    for name in naming.targets:
        channels = [i for i, o in enumerate(samples.outputs) if o.startswith(name.field)]
        values = [sample.targets[..., channels] for sample in samples.samples]
        fields[f"{name.field}_predicted"] = values
        fields[f"{name.field}_error"] = [-array for array in values]
    write_predictions(target := default_target(path), naming, samples, fields)
    return target


def test_errors_are_not_called_by_the_name_of_their_field():
    attributes = {
        "units": "K",
        "standard_name": "air_temperature",
        "long_name": "air",
        "valid_range": np.array([200.0, 300.0]),
    }
    assert inherited(attributes, "predicted") == {
        "units": "K",
        "standard_name": "air_temperature",
        "long_name": "air (predicted)",
    }
    assert inherited(attributes, "error") == {"units": "K", "long_name": "air (error)"}


def test_netcdf_frames_have_their_times_and_projection(tmp_path):
    lat, lon = np.meshgrid(np.linspace(40, 50, 6), np.linspace(0, 12, 7), indexing="ij")
    attributes = {"units": "Pa", "standard_name": "air_pressure", "grid_mapping": "crs"}
    pressure = layouts.smooth(layouts.S, layouts.T, 6, 7)
    data = xarray.Dataset(
        {"p": (("case", "time", "y", "x"), pressure, attributes), "crs": ((), 0)},
        {
            "lat": (("y", "x"), lat, {"units": "degrees_north"}),
            "lon": (("y", "x"), lon, {"units": "degrees_east"}),
            "time": ("time", 6.0 * np.arange(layouts.T), {"units": "hours since 2000-01-01"}),
        },
    )
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", unlimited_dims=["case"])
    with xarray.open_dataset(predicted(tmp_path / "a.nc")) as found:
        assert found["p_predicted"].attrs == attributes
        assert found["p_error"].attrs == {"units": "Pa", "grid_mapping": "crs"}
        assert {"lat", "lon"} <= set(found["p_predicted"].coords)
        assert found.encoding["unlimited_dims"] == {"case"}
        truth = found["p"].sel(time=found["time_predicted"])
        np.testing.assert_allclose(found["p_predicted"], truth, rtol=1e-6)
    data.to_zarr(tmp_path / "a.zarr", zarr_format=2, consolidated=True)
    with xarray.open_zarr(predicted(tmp_path / "a.zarr"), consolidated=True, chunks=None) as found:
        assert (found["time_predicted"] == found["time"][1:].values).all()


def test_arrays_of_hdf5_and_zarr_keep_attributes(tmp_path):
    a, u = layouts.smooth(layouts.S, 6, 7), layouts.smooth(layouts.S, 6, 7, seed=1)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"], file["u"], file.attrs["solver"] = a, u, "v2"
        file["u"].attrs["units"] = "m/s"
    with h5py.File(predicted(tmp_path / "a.h5")) as file:
        assert dict(file["u_predicted"].attrs) == dict(file["u_error"].attrs) == {"units": "m/s"}
        assert dict(file.attrs) == {"solver": "v2"}
        assert not file["coords"].attrs
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", attributes={"solver": "v2"})
    group.create_array("a", data=a)
    group.create_array("u", data=u, attributes={"units": "m/s"}, chunks=(1, 6, 7))
    found = zarr.open_group(predicted(tmp_path / "a.zarr"), mode="r")
    assert dict(found.attrs) == {"solver": "v2"}
    assert all(found[n].attrs["units"] == "m/s" for n in ("u", "u_predicted", "u_error"))
    assert found["u"].chunks == (1, 6, 7)


def test_tensors_keep_their_channels_second(tmp_path):
    x = torch.from_numpy(layouts.smooth(layouts.S, 8, 9))[:, None]
    torch.save({"x": x, "y": torch.cat((x**2, x + 1), dim=1)}, tmp_path / "a.pt")
    found = torch.load(predicted(tmp_path / "a.pt"), weights_only=True)
    torch.testing.assert_close(found["y_predicted"], torch.cat((x**2, x + 1), dim=1))
    torch.save({"x": x, "y": x**2}, tmp_path / "b.pt")
    found = torch.load(predicted(tmp_path / "b.pt"), weights_only=True)
    torch.testing.assert_close(found["y_predicted"], x**2)


def test_vtk_arrays_keep_units_and_names_of_components(tmp_path):
    label = vtkDataArray.UNITS_LABEL()
    (tmp_path / "meshes").mkdir()
    for i in range(layouts.S):
        mesh = layouts.plate(i)
        mesh.cell_data["u"] = layouts.centres(mesh) * (1 + i)
        mesh.cell_data.GetArray("u").GetInformation().Set(label, "mm")
        for axis, name in enumerate("xyz"):
            mesh.cell_data.GetArray("u").SetComponentName(axis, name)
        mesh.save(tmp_path / "meshes" / f"{i}.vtu")
    found = pyvista.read(predicted(tmp_path / "meshes", targets="u") / "3.vtu")
    np.testing.assert_allclose(found.cell_data["u_predicted"], found.cell_data["u"], rtol=1e-6)
    for name in ("u_predicted", "u_error"):
        array = found.cell_data.GetArray(name)
        assert array.GetInformation().Get(label) == "mm"
        assert [array.GetComponentName(axis) for axis in range(3)] == ["x", "y", "z"]


def test_compressed_openfoam_fields_have_dimensions(tmp_path):
    for i in range(layouts.S):
        flow = layouts.linear_flow(i)
        layouts.write_case(tmp_path / "foam" / f"case_{i}", flow, (100,), "steadyState")
    for file in (*(tmp_path / "foam").glob("*/100/U"), *(tmp_path / "foam").rglob("boundary")):
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    case = predicted(tmp_path / "foam", targets="U") / "case_4"
    text = (case / "100" / "U_predicted").read_text()
    assert "dimensions [0 1 -1 0 0 0 0];" in text
    assert "frontAndBack { type empty; }" in text
    reader = pyvista.OpenFOAMReader(case / "system" / "controlDict")
    reader.set_active_time_value(100)
    cells = reader.read()["internalMesh"].cell_data
    np.testing.assert_allclose(cells["U_predicted"], cells["U"], rtol=1e-5)


def test_tables_keep_their_decimal_sign_index_and_metadata(tmp_path):
    table = layouts.table()
    table.to_csv(tmp_path / "a.csv", index=False, sep=";", decimal=",")
    found = pandas.read_csv(predicted(tmp_path / "a.csv"), sep=";", decimal=",")
    np.testing.assert_allclose(found["p_predicted [Pa]"], table["p [Pa]"])
    np.testing.assert_allclose(found["p [Pa]"], table["p [Pa]"])
    table = table.rename(columns=lambda name: name.split()[0]).set_index("case")
    content = pyarrow.Table.from_pandas(table)
    schema = content.schema.with_metadata({**content.schema.metadata, b"run": b"42"})
    place = schema.get_field_index("p")
    schema = schema.set(place, schema.field("p").with_metadata({"units": "Pa"}))
    pyarrow.parquet.write_table(content.cast(schema), tmp_path / "a.parquet")
    found = pyarrow.parquet.read_table(predicted(tmp_path / "a.parquet"))
    assert found.schema.metadata[b"run"] == b"42"
    for name in ("p", "p_predicted", "p_error"):
        assert found.schema.field(name).metadata == {b"units": b"Pa"}
    np.testing.assert_allclose(found["p_predicted"], table["p"])
    assert set(table.reset_index().columns) <= set(found.to_pandas().columns)
