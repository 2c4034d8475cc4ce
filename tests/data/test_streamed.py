"""Streamed data are the data in memory, in an order of their own."""

import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cato.data import streamed as module
from cato.data.dataset import Dataset, InMemory, load_spec
from cato.data.spec import DataSpec
from cato.data.statistics import statistics_of
from cato.data.streamed import Streamed, block_order
from cato.data.watch import Watch
from cato.errors import InputError
from cato.problem import Problem

SPEC = DataSpec("darcy", "smoke")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Two samples of Darcy to a piece, three pieces to a block."""
    monkeypatch.setattr(module, "PIECE_BYTES", 4000)
    monkeypatch.setattr(module, "BLOCK_BYTES", 12000)


@pytest.fixture
def pair(smoke_file):
    """The training samples in memory and streamed."""
    root = smoke_file.parent
    return load_spec(SPEC, root).train, load_spec(SPEC, root, streamed=True).train


class ArraySource:
    """Samples with their own nodes and masks; a source without a file."""

    path, coords, is_padded, chunk, fingerprint = Path("arrays"), None, True, 1, "arrays"

    def __init__(self, data: Dataset) -> None:
        self.watch, self._data = Watch([], ""), data

    def __len__(self) -> int:
        return len(self._data)

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        some = self._data.subset(torch.from_numpy(indices))
        return {**some.arrays(), "mask": some.mask.numpy()}


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        assert (a is None) == (b is None)
        assert a is None or (a.dtype == b.dtype and torch.equal(a, b))


def test_two_samples_make_a_piece_here(pair):
    assert (pair[1].piece, pair[1].pieces_per_block, len(pair[1])) == (2, 3, 24)


@pytest.mark.parametrize("indices", [[3], [7, 2, 19, 2], slice(5, 20, 3), torch.tensor([23, 0])])
def test_batches_are_those_in_memory(pair, indices):
    memory, streamed = pair
    assert_same(memory.batch(indices), streamed.batch(indices))
    some = slice(1, None, 2)
    places = [0, 5, 3]
    assert_same(memory.subset(some).batch(places), streamed.subset(some).batch(places))
    assert torch.equal(memory.subset(indices).targets, streamed.subset(indices).targets)
    assert torch.equal(memory.coords, streamed.coords)


def test_no_samples_are_those_in_memory(pair):
    """Such as the test split of cross-validation."""
    memory, streamed = (data.subset(slice(0)) for data in pair)
    for name in ("coords", "inputs", "targets"):
        assert torch.equal(getattr(memory, name), getattr(streamed, name))


def test_clouds_with_masks_are_those_in_memory():
    problem = Problem("cloud", "cloud", (9,), ("a",), ("u",))
    rng = np.random.default_rng(0)
    mask = np.arange(9) < rng.integers(4, 10, (13, 1))
    coords, inputs, targets = (rng.random((13, 9, c), np.float32) for c in (2, 1, 1))
    memory = Dataset.from_arrays(problem, coords, inputs, targets, mask=mask)
    streamed = Streamed.of(problem, ArraySource(memory), "cloud")
    assert streamed.is_padded
    assert_same(memory.batch([12, 0, 7]), streamed.batch([12, 0, 7]))
    assert torch.equal(streamed.mask, memory.mask)
    one, other = (statistics_of(data).moments for data in (memory, streamed))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name].squares, other[name].squares) for name in one)


def test_statistics_are_bit_for_bit_those_in_memory(pair):
    one, other = (statistics_of(data).moments for data in pair)
    assert one.keys() == other.keys()
    for name, moments in one.items():
        assert torch.equal(moments.mean, other[name].mean)
        assert torch.equal(moments.squares, other[name].squares)


def test_moments_are_those_of_numpy(pair):
    memory = pair[0]
    moments = statistics_of(memory)
    values = memory.targets.double().numpy()
    found = moments.outputs(memory.problem.conditioning)
    np.testing.assert_allclose(found.mean, values.mean((0, 1)), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, values.std((0, 1)), rtol=1e-12)
    by_node = moments.outputs(memory.problem.conditioning, by_node=True)
    np.testing.assert_allclose(by_node.deviation, values.std(0), rtol=1e-9, atol=1e-12)
    over = by_node.over_first_axis()
    np.testing.assert_allclose(over.deviation, values.std((0, 1)), rtol=1e-12)


@given(
    num_samples=st.integers(1, 200),
    piece=st.integers(1, 20),
    per_block=st.integers(1, 10),
    seed=st.integers(0, 2**32 - 1),
    epoch=st.integers(0, 10**6),
)
def test_every_epoch_has_every_sample_once_block_by_block(
    num_samples, piece, per_block, seed, epoch
):
    order = block_order(num_samples, piece, per_block, seed, epoch).tolist()
    assert sorted(order) == list(range(num_samples))
    assert order == block_order(num_samples, piece, per_block, seed, epoch).tolist()
    pieces = Counter(k // piece for k in order)
    # A piece that begins in a block ends in it: at most `per_block` pieces are open at once.
    seen: Counter[int] = Counter()
    for k in order:
        seen[k // piece] += 1
        is_open = [p for p, n in seen.items() if n < pieces[p]]
        assert len(is_open) <= per_block


def test_epochs_differ_and_samples_of_a_block_are_mixed():
    first, second = (block_order(1000, 10, 5, 0, epoch) for epoch in (0, 1))
    assert not torch.equal(first, second)
    block = first[:50]
    assert len(set((block // 10).tolist())) == 5
    assert not torch.equal(block, block.sort().values)


def test_few_pieces_are_kept(pair, monkeypatch):
    streamed = pair[1]
    read = []
    monkeypatch.setattr(
        Streamed, "_read", lambda self, n, old=Streamed._read: read.append(n) or old(self, n)
    )
    for batch in streamed.batches(4):
        assert len(batch.targets) == 4
    assert read == list(range(12))
    assert len(streamed._pieces._pieces) <= 3 * streamed.pieces_per_block


def test_prefetched_pieces_are_not_read_again(pair, monkeypatch):
    streamed = pair[1]
    read = []
    monkeypatch.setattr(
        Streamed, "_read", lambda self, n, old=Streamed._read: read.append(n) or old(self, n)
    )
    streamed.prefetch([0, 1, 4, 5])
    streamed.batch([5, 0, 1])
    assert sorted(read) == [0, 2]


def test_memory_is_that_of_a_few_blocks(monkeypatch):
    """A source 30 times larger than what is kept."""
    monkeypatch.setattr(module, "PIECE_BYTES", 2**17)
    monkeypatch.setattr(module, "BLOCK_BYTES", 2**19)
    problem = Problem("p", "grid", (64, 64), ("a",), ("u",))
    line = np.linspace(0, 1, 64)

    class Made(ArraySource):
        coords, is_padded = np.stack(np.meshgrid(line, line, indexing="ij"), -1), False

        def __init__(self):
            self.watch = Watch([], "")

        def __len__(self):
            return 1500

        def read(self, indices):
            shape = (len(indices), 64, 64, 1)
            return {name: np.ones(shape, np.float32) for name in ("inputs", "targets")}

    data = Streamed.of(problem, Made(), "made")
    data.batch([0])
    tracemalloc.start()
    order = data.order(0, 0)
    for first in range(0, len(data), 4):
        data.prefetch(order[first : first + data.lookahead])
        assert len(data.batch(order[first : first + 4]).targets) == 4
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert data.sample_bytes * len(data) > 30 * 2**19 * module.BLOCKS_KEPT
    assert peak < 3 * 2**19 * module.BLOCKS_KEPT


def test_a_damaged_sample_is_named(smoke_file):
    import h5py

    with h5py.File(smoke_file, "r+") as file:
        file["train/targets"][9, 3, 3, 0] = 1.5
    train = load_spec(SPEC, smoke_file.parent, streamed=True).train
    train.batch([8 - 1, 0])
    with pytest.raises(InputError, match=r"train sample 9 is damaged.*delete it and run"):
        train.batch([8])


@pytest.mark.parametrize("change", ["truncate", "rewrite", "touch", "remove", "in place"])
def test_a_file_that_changes_is_one_line(smoke_file, change):
    import os

    train = load_spec(SPEC, smoke_file.parent, streamed=True).train
    train.batch([0])
    about, content = smoke_file.stat(), smoke_file.read_bytes()
    if change == "truncate":
        os.truncate(smoke_file, about.st_size // 2)
    elif change == "rewrite":
        (other := smoke_file.with_suffix(".new")).write_bytes(content)
        os.utime(other, ns=(about.st_atime_ns, about.st_mtime_ns))
        other.replace(smoke_file)
    elif change == "touch":
        os.utime(smoke_file)
    elif change == "remove":
        smoke_file.unlink()
    else:  # with size and time as before
        with smoke_file.open("r+b") as file:
            file.write(bytes(len(content)))
        os.utime(smoke_file, ns=(about.st_atime_ns, about.st_mtime_ns))
    words = "has changed while|is gone|truncated, damaged"
    with pytest.raises(InputError, match=words) as found:
        list(train.batches(2))
    assert "\n" not in str(found.value)


def test_all_at_once_needs_the_memory(pair, monkeypatch):
    streamed = pair[1]
    assert isinstance(streamed.in_memory(), InMemory)
    monkeypatch.setattr(module, "require_memory", lambda size, what, remedy: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        streamed.targets  # noqa: B018


def test_statistics_are_computed_once_for_all_conditionings(pair, monkeypatch):
    streamed = pair[1]
    known = statistics_of(streamed)
    conditioning = replace(streamed.problem.conditioning, reference="node")
    assert statistics_of(streamed.on(replace(streamed.problem, conditioning=conditioning))) is known
    assert statistics_of(streamed.subset(slice(5))) is not known
