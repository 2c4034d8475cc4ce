"""A mesh spread over processes gives what one process gives, to rounding.

Four processes compute every case with slabs of a quarter of the rows, and in two pairs with slabs
of half of them.
"""

import multiprocessing

import numpy as np
import pytest
import torch
import torch.distributed as dist

from cato.data.normalise import Normaliser
from cato.errors import InputError
from cato.models.cato.grid import CatoConfig
from cato.models.registry import MODELS, build_model
from cato.partition import WHOLE, Partition, require_divisible
from cato.physics.gradient import inverse_metric
from cato.physics.losses import LossConfig, PhysicalLoss
from cato.problem import Conditioning, Problem
from cato.runs.settings import build_settings
from cato.surrogate import Surrogate
from cato.training.devices import make_fabric, require_supported

ALL_TERMS = LossConfig(gradient=0.2, flux=0.2, consistency=0.05, gdl=0.1, gradient_scale="raw")


def mesh(shape, **changes):
    return Problem("test", "mesh", shape, ("a",), ("u", "v"), dimension=len(shape), **changes)


SMALL = {"width": 8, "depth": 2, "heads": 2}
PER_NODE = Conditioning(reference="node", mesh_inputs=True)
CASES = {
    "uneven": (mesh((13, 9)), CatoConfig(**SMALL)),
    "torus": (
        mesh((10, 7), periodic=(True, True), period=(1.0, 1.0), normalise=("inputs", "outputs")),
        CatoConfig(**SMALL, variant="ours"),
    ),
    "space": (mesh((6, 5, 4), periodic=(False, True, False)), CatoConfig(**SMALL)),
    "one row each, with a stencil of five": (
        mesh((5, 4), periodic=(True, False)),
        CatoConfig(**SMALL, kernel=5),
    ),
    "one row each, with a boundary": (mesh((4, 6)), CatoConfig(**SMALL, kernel=5)),
    "fields by node": (mesh((9, 8), conditioning=PER_NODE), CatoConfig(**SMALL, norm=False)),
    "projections by axis, in another order": (
        mesh((9, 8), time="conditioned", num_steps=3),
        CatoConfig(**SMALL, share_qkv=False, axes=(1, 0), learn_rotary_scale=True),
    ),
    "rows only, no stencil": (mesh((9, 8)), CatoConfig(**SMALL, axes=(1,), kernel=0)),
    "columns only": (mesh((9, 8)), CatoConfig(**SMALL, axes=(0,), chart="none")),
}


def types_of(case):
    """float64 takes PyTorch's operations, float32 the compiled loops."""
    return (torch.float64, torch.float32) if case in ("uneven", "torus") else (torch.float64,)


def coords_of(problem, rng):
    """A bent mesh that closes where its axes do, and another one for every sample."""
    axes = [
        torch.arange(n) / (n if wraps else n - 1)
        for n, wraps in zip(problem.shape, problem.periodic, strict=True)
    ]
    nodes = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
    if any(problem.periodic) and not any(problem.period):  # around a hole
        axis = problem.periodic.index(True)
        angle, radius = 2 * torch.pi * nodes[:, axis], 1 + nodes[:, axis - 1]
        nodes[:, axis], nodes[:, axis - 1] = radius * angle.sin(), radius * angle.cos()
    nodes = nodes.expand(2, -1, -1)
    return nodes + 0.02 * torch.rand(nodes.shape, generator=rng)


def figures(case, partition, dtype):
    """Loss, terms, gradients of all weights, and the whole solution."""
    problem, config = CASES[case]
    rng = torch.Generator().manual_seed(3)
    torch.manual_seed(5)
    model = build_model("cato", config, problem)
    normaliser = Normaliser(problem)
    for name, buffer in normaliser.named_buffers():
        if "outputs" in name or "mesh" in name:
            buffer.copy_(1 + 0.1 * torch.rand(buffer.shape, generator=rng))
    surrogate = Surrogate(model, normaliser).to(dtype)
    coords = coords_of(problem, rng).to(dtype)
    inputs, targets = (
        torch.randn(2, problem.num_nodes, n, generator=rng, dtype=dtype) for n in (1, 2)
    )
    time = torch.tensor([0.2, 0.9], dtype=dtype) if problem.has_time else None
    metric = inverse_metric(coords, problem.shape, problem.periodic, problem.period)
    if not partition.is_whole:
        surrogate.spread_over(partition)
    loss = PhysicalLoss(ALL_TERMS, problem, partition=partition).to(dtype)
    values, flux = surrogate(partition.slab(coords), partition.slab(inputs), time=time)
    total, terms = loss(
        values, partition.slab(targets), flux=flux, metric=partition.slab(metric, 1)
    )
    total.backward()
    found = {f"term {name}": term for name, term in terms.items()} | {"total": total.detach()}
    for name, weight in surrogate.named_parameters():
        if weight.grad is not None:  # the chart of a torus is not used
            found[name] = partition.total(weight.grad)
    with torch.no_grad():
        found["solution"] = surrogate.solve(coords, inputs)
    return {name: value.numpy() for name, value in found.items()}


def all_figures(rank, store):
    """What one of four processes finds, with slabs of halves and of quarters."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=4)
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    found = {}
    for case, (problem, _) in CASES.items():
        rows = problem.shape[0]
        for partition in (
            Partition(rows, rank % 2, 2, pairs[rank // 2]),
            Partition(rows, rank, 4, dist.group.WORLD),
        ):
            for dtype in types_of(case):
                found[case, partition.size, dtype] = figures(case, partition, dtype)
    dist.destroy_process_group()
    return found


@pytest.fixture(scope="module")
def of_processes(tmp_path_factory):
    store = tmp_path_factory.mktemp("group") / "store"
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        return pool.starmap(all_figures, [(rank, store) for rank in range(4)], chunksize=1)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("case", "dtype"), [(case, t) for case in CASES for t in types_of(case)])
def test_slabs_give_what_one_process_gives(of_processes, case, size, dtype):
    expected = figures(case, WHOLE, dtype)
    rtol, atol = (1e-9, 1e-11) if dtype == torch.float64 else (1e-3, 1e-5)
    for found in of_processes:
        one = found[case, size, dtype]
        assert one.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(one[name], value, rtol, atol, err_msg=name)


def test_every_row_has_one_owner():
    for num_rows in range(4, 20):
        shares = [Partition(num_rows, rank, 4).rows for rank in range(4)]
        assert [row for rows in shares for row in rows] == list(range(num_rows))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("shape", [(3, 8), (8, 3)])
def test_too_few_rows_or_columns_are_refused(shape):
    with pytest.raises(InputError, match=r"fewer rows or columns than 4.*mesh-parallel 3 or less"):
        require_divisible(shape, 4)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "cato"])
def test_other_models_are_refused(name):
    geometry = "grid" if "grid" in MODELS[name].geometries else "cloud"
    shape = (16, 16) if geometry == "grid" else (40,)
    problem = Problem("test", geometry, shape, ("a",), ("u",))
    config = build_settings("darcy", "smoke", "cato", {"train": {"mesh_parallel": 2}})
    values = config.__dict__ | {"model_name": name, "model": MODELS[name].config_class()}
    with pytest.raises(InputError, match=r"only CATO on grids and meshes can"):
        require_supported(type(config)(**values), problem)


def test_processes_must_be_a_multiple(config_with):
    with pytest.raises(InputError, match=r"mesh-parallel 2 needs a multiple.*not 1"):
        make_fabric(config_with(train={"mesh_parallel": 2}).train)
