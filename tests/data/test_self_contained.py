"""HDF5 files that take values from other files are refused, in every format that is HDF5."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from cato.data.store import read_store
from cato.errors import InputError
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.read import read_samples
from cato.user_data.readers import OPENERS
from cato.user_data.streamed import StreamedSamples

S, MESH = 4, (3, 4)
NODES = np.stack(np.meshgrid(*[np.linspace(0, 1, n) for n in MESH], indexing="ij"), -1)


def add_virtual(file: h5py.File, folder: Path) -> str:
    """Targets that lie in two files, one of which does not exist: half of them would be 0."""
    layout = h5py.VirtualLayout((S, *MESH, 1), float)
    with h5py.File(folder / "part.h5", "w") as part:
        part["u"] = np.ones((2, *MESH, 1))
    for number, name in enumerate(("part.h5", "missing.h5")):
        layout[2 * number : 2 * number + 2] = h5py.VirtualSource(name, "u", (2, *MESH, 1))
    file.create_virtual_dataset("targets", layout)
    return "'targets' is a virtual dataset"


def add_external(file: h5py.File, folder: Path) -> str:
    """Targets that are the bytes of any file."""
    size = 8 * S * MESH[0] * MESH[1]
    (folder / "secret").write_bytes(bytes(size))
    file.create_dataset("targets", (S, *MESH, 1), float, external=[("secret", 0, size)])
    return "'targets' is stored in secret"


def add_external_link(file: h5py.File, folder: Path) -> str:
    with h5py.File(folder / "other.h5", "w") as other:
        other["u"] = np.ones((S, *MESH, 1))
    file["targets"] = h5py.ExternalLink("other.h5", "u")
    return "'targets' is a link to other.h5"


def add_hidden_link(file: h5py.File, folder: Path) -> str:
    """A soft link that passes through an external one, in a group."""
    add_external_link(file, folder)
    file.move("targets", "hidden/away")
    file["targets"] = h5py.SoftLink("/hidden/away")
    return "'hidden/away' is a link to other.h5"


ways = pytest.mark.parametrize(
    "add", [add_virtual, add_external, add_external_link, add_hidden_link]
)


@ways
@pytest.mark.parametrize("suffix", [".h5", ".mat", ".nc"])
def test_user_files(add, suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"data{suffix}"
    with h5py.File(path, "w") as file:
        file["coords"], file["inputs"] = NODES, np.ones((S, *MESH, 1))
        expected = add(file, tmp_path)
    naming = Naming() if suffix != ".nc" else Naming.parse("coords", "inputs", "targets")
    with pytest.raises(InputError) as error:
        read_samples(path, ReadRequest(naming))
    message = str(error.value)
    assert f"data{suffix}: {expected}" in message
    assert "one HDF5 file" in message
    assert "\n" not in message


@pytest.mark.parametrize("suffix", [".h5", ".mat", ".nc"])
@pytest.mark.parametrize("chunks", [None, (1, 3, 2, 1)])
def test_values_that_were_never_written_are_not_zeros(suffix, chunks, tmp_path):
    path = tmp_path / f"data{suffix}"
    with h5py.File(path, "w") as file:
        file["coords"], file["inputs"] = NODES, np.ones((S, *MESH, 1))
        targets = file.create_dataset("targets", (S, *MESH, 1), float, chunks=chunks)
        if chunks:
            targets[:, :, :2] = 1  # one of two chunks of every sample
    with pytest.raises(InputError, match="'targets' was never written to its end"):
        OPENERS[suffix](path).read("targets")
    if suffix == ".h5":
        with pytest.raises(InputError, match="'targets' was never written to its end"):
            StreamedSamples(path, ReadRequest(Naming()), "").window(0, 2)


def test_missing_chunks_of_zarr_are_mentioned(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "data.zarr", mode="w")
    group.create_array("coords", data=NODES)
    for name in ("inputs", "targets"):
        values = 1 + np.random.default_rng(0).random((S, *MESH, 1))
        group.create_array(name, data=values, chunks=(S, 3, 2, 1))
    (tmp_path / "data.zarr" / "targets" / "c" / "0" / "0" / "1" / "0").unlink()
    notes = read_samples(tmp_path / "data.zarr", ReadRequest(Naming())).notes
    assert "1 of 2 chunks of targets are not in the store and are read as 0.0" in notes


def test_soft_links_inside_a_file_are_harmless(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["coords"], file["inputs"] = NODES, np.ones((S, *MESH, 1))
        file["targets"] = np.ones((S, *MESH, 1))
        file["alias"] = h5py.SoftLink("/targets")
        file["nowhere"] = h5py.SoftLink("/missing")
        file["again"] = file["/"]  # a cycle
    assert len(read_samples(tmp_path / "data.h5", ReadRequest(Naming()))) == S


def test_generated_data(smoke_file):
    """A part of a store that lies elsewhere, although its checksums would fit."""
    with h5py.File(smoke_file, "a") as file:
        values = file["test/targets"][()]
        with h5py.File(smoke_file.with_name("other.h5"), "w") as other:
            other["u"] = values
        del file["test/targets"]
        file["test/targets"] = h5py.ExternalLink("other.h5", "u")
    with pytest.raises(InputError, match=r"link to other\.h5.*generate it again"):
        read_store(smoke_file, "generate it again")
