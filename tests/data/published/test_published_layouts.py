"""What is read of the published files, from where: every field against plain indexing."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from published import Arrays, full, make, on_mesh, shrink, write

from cato.benchmarks import get_benchmark

SPLITS = {"train": [0, 1, 2], "validation": [3], "test": [6, 7]}
FIRST = SPLITS | {"test": [0, 1]}
NEXT = SPLITS | {"test": [4, 5]}
Stock = Callable[[str], tuple[Path, Arrays]]


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    """Files that no test changes, and what was written."""
    root, written = tmp_path_factory.mktemp("published"), dict[str, Arrays]()

    def provide(benchmark: str) -> tuple[Path, Arrays]:
        if benchmark not in written:
            written[benchmark] = make(benchmark)
            write(root / benchmark, written[benchmark])
        return root / benchmark, written[benchmark]

    yield provide
    shutil.rmtree(root)


PUBLISHED = {
    "darcy": [
        ("piececonst_r421_N1024_smooth1.mat", "coeff", "(≥ 1000, 421, 421)"),
        ("piececonst_r421_N1024_smooth1.mat", "sol", "(≥ 1000, 421, 421)"),
        ("piececonst_r421_N1024_smooth2.mat", "coeff", "(≥ 200, 421, 421)"),
        ("piececonst_r421_N1024_smooth2.mat", "sol", "(≥ 200, 421, 421)"),
    ],
    "navier_stokes": [("NavierStokes_V1e-5_N1200_T20.mat", "u", "(≥ 1200, 64, 64, 20)")],
    "airfoil": [
        ("NACA_Cylinder_X.npy", "", "(≥ 1200, 221, 51)"),
        ("NACA_Cylinder_Y.npy", "", "(≥ 1200, 221, 51)"),
        ("NACA_Cylinder_Q.npy", "", "(≥ 1200, 5, 221, 51)"),
    ],
    "pipe": [
        ("Pipe_X.npy", "", "(≥ 1200, 129, 129)"),
        ("Pipe_Y.npy", "", "(≥ 1200, 129, 129)"),
        ("Pipe_Q.npy", "", "(≥ 1200, 3, 129, 129)"),
    ],
    "plasticity": [
        ("plas_N987_T20.mat", "input", "(≥ 987, 101)"),
        ("plas_N987_T20.mat", "output", "(≥ 987, 101, 31, 20, 4)"),
    ],
    "elasticity": [
        ("Random_UnitCell_sigma_10.npy", "", "(972, ≥ 1200)"),
        ("Random_UnitCell_XY_10.npy", "", "(972, 2, ≥ 1200)"),
    ],
}
NUM_PUBLISHED = {"darcy": 1024, "elasticity": 2000, "plasticity": 987, "navier_stokes": 1200}
FIRST_TEST = {"darcy": 0, "elasticity": 1800, "plasticity": 907}
"""Where it is not sample 1000."""


@pytest.mark.parametrize("benchmark", PUBLISHED)
def test_table_is_the_published_one(benchmark: str) -> None:
    files = full(benchmark)
    assert [(a.file, a.name) for a in files.published.layouts] == [
        (file, name) for file, name, _ in PUBLISHED[benchmark]
    ]
    scale = get_benchmark(benchmark).scale("paper")
    for layout, (*_, shape) in zip(files.published.layouts, PUBLISHED[benchmark], strict=True):
        assert layout.expected.endswith(shape)
        every = range(NUM_PUBLISHED.get(benchmark, 2310))
        if "train" in layout.samples:
            assert every[layout.samples["train"]] == range(scale.train + scale.validation)
        if "test" in layout.samples:
            first = FIRST_TEST.get(benchmark, 1000)
            assert every[layout.samples["test"]] == range(first, first + scale.test)
    assert files.num_validation == scale.validation


@pytest.mark.parametrize(
    ("benchmark", "normalise"),
    [
        ("darcy", ("inputs", "outputs")),
        ("navier_stokes", ()),
        ("airfoil", ()),
        ("pipe", ("coords", "outputs")),
        ("plasticity", ("inputs",)),
        ("elasticity", ("outputs",)),
    ],
)
def test_problem_is_the_generated_one_with_published_normalisation(
    benchmark: str, normalise: tuple[str, ...], stock: Stock
) -> None:
    splits = shrink(benchmark).read(stock(benchmark)[0])
    expected = replace(get_benchmark(benchmark).problem("paper"), normalise=normalise)
    assert splits.problem == expected
    assert all(data.problem == expected for data in splits.datasets.values())
    assert [len(splits.datasets[name]) for name in ("train", "validation", "test")] == [3, 1, 2]


def test_darcy_is_every_fifth_node(stock: Stock) -> None:
    folder, arrays = stock("darcy")
    splits = shrink("darcy").read(folder)
    for split, indices in FIRST.items():
        coords, inputs, targets = on_mesh(splits.datasets[split])
        file = f"piececonst_r421_N1024_smooth{2 if split == 'test' else 1}.mat"
        for k, sample in enumerate(indices):
            for i, j in [(0, 0), (84, 84), (3, 70), (41, 12)]:
                assert inputs[k, i, j, 0] == arrays[file, "coeff"][sample, 5 * i, 5 * j]
                assert targets[k, i, j, 0] == arrays[file, "sol"][sample, 5 * i, 5 * j]
        assert coords[21, 63] == pytest.approx([21 / 84, 63 / 84])


def test_navier_stokes_frames_become_inputs_and_steps(stock: Stock) -> None:
    folder, arrays = stock("navier_stokes")
    splits = shrink("navier_stokes").read(folder)
    (u,) = arrays.values()
    for split, indices in SPLITS.items():
        coords, inputs, targets = on_mesh(splits.datasets[split])
        for k, sample in enumerate(indices):
            for i, j in [(0, 0), (63, 5), (7, 40)]:
                for t in range(10):
                    assert inputs[k, i, j, t] == u[sample, i, j, t]
                    assert targets[k, t, i, j, 0] == u[sample, i, j, 10 + t]
        assert coords[16, 48] == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize(
    ("benchmark", "prefix", "channel"), [("airfoil", "NACA_Cylinder", 4), ("pipe", "Pipe", 0)]
)
def test_flow_on_its_mesh(benchmark: str, prefix: str, channel: int, stock: Stock) -> None:
    folder, arrays = stock(benchmark)
    splits = shrink(benchmark).read(folder)
    x, y, q = (arrays[f"{prefix}_{letter}.npy", ""] for letter in "XYQ")
    for split, indices in NEXT.items():
        coords, inputs, targets = on_mesh(splits.datasets[split])
        assert inputs.shape[-1] == 0
        for k, sample in enumerate(indices):
            for i, j in [(0, 0), (128, 50), (3, 17), (90, 2)]:
                assert coords[k, i, j].tolist() == [x[sample, i, j], y[sample, i, j]]
                assert targets[k, i, j, 0] == q[sample, channel, i, j]


def test_plasticity_repeats_the_die_over_the_rows(stock: Stock) -> None:
    folder, arrays = stock("plasticity")
    splits = shrink("plasticity").read(folder)
    die, output = arrays.values()
    for split, indices in SPLITS.items():
        coords, inputs, targets = on_mesh(splits.datasets[split])
        for k, sample in enumerate(indices):
            for i, j in [(0, 0), (100, 30), (17, 4)]:
                assert inputs[k, i, j, 0] == die[sample, i]
                for t in (0, 7, 19):
                    assert targets[k, t, i, j].tolist() == output[sample, i, j, t].tolist()
        assert coords[100, 30] == pytest.approx([1, 0.3])
        assert coords[25, 10] == pytest.approx([0.25, 0.1])


def test_elasticity_samples_are_the_last_axis(stock: Stock) -> None:
    folder, arrays = stock("elasticity")
    splits = shrink("elasticity").read(folder)
    sigma, xy = arrays.values()
    for split, indices in SPLITS.items():
        coords, _, targets = on_mesh(splits.datasets[split])
        for k, sample in enumerate(indices):
            for i in (0, 971, 300):
                assert coords[k, i].tolist() == xy[i, :, sample].tolist()
                assert targets[k, i, 0] == sigma[i, sample]
