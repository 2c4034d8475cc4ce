"""The contract that every model of the registry keeps, whatever it is inside."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cato.config import from_dict, to_dict
from cato.errors import InputError
from cato.models.registry import MODELS, build_model
from cato.problem import Problem

GRID = Problem("grid", "grid", (13, 17), ("a",), ("u",))
MESH = Problem("mesh", "mesh", (17, 12), (), ("u", "v"))
TORUS = Problem(
    "torus", "grid", (16, 16), ("w1", "w2"), ("w",), periodic=(True, True), period=(1.0, 1.0)
)
TIMED = Problem("timed", "mesh", (14, 12), ("a",), ("x", "y"), time="conditioned", num_steps=5)
CLOUD = Problem("cloud", "cloud", (50,), (), ("s",))
CLOUD_WITH_INPUT = Problem("inputs", "cloud", (40,), ("a", "b"), ("s",))
PROBLEMS = {p.name: p for p in (GRID, MESH, TORUS, TIMED, CLOUD, CLOUD_WITH_INPUT)}

SMALL = {"width": 16, "depth": 2}
"""Where a model has these settings; the others stay at their defaults."""
SPECIAL = {"wmt": {"width": 18}}  # a multiple of its 3 × 3 polynomials

PAIRS = [
    pytest.param(name, problem, id=f"{name}-{problem.name}")
    for name, entry in MODELS.items()
    for problem in PROBLEMS.values()
    if problem.geometry in entry.geometries
]
CLOUD_MODELS = [name for name, entry in MODELS.items() if "cloud" in entry.geometries]
GRID_MODELS = [name for name, entry in MODELS.items() if "grid" in entry.geometries]
every_pair = pytest.mark.parametrize(("name", "problem"), PAIRS)


def small_config(name):
    cls = MODELS[name].config_class
    known = {key: value for key, value in SMALL.items() if key in cls.__dataclass_fields__}
    return cls(**(known | SPECIAL.get(name, {})))


def make(name, problem, seed=0):
    torch.manual_seed(seed)
    return build_model(name, small_config(name), problem).eval()


def data(problem, shape=None, batch=2, seed=1):
    """Slightly distorted nodes (none coincide), inputs and times."""
    generator = torch.Generator().manual_seed(seed)
    shape = shape or problem.shape
    if problem.geometry == "cloud":
        coords = torch.rand(batch, *shape, 2, generator=generator)
    else:
        closed = problem.periodic
        axes = [torch.arange(n) / (n if c else n - 1) for n, c in zip(shape, closed, strict=True)]
        nodes = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
        wobble = 0.0 if problem.geometry == "grid" else 0.02
        coords = nodes + wobble * torch.rand(batch, len(nodes), 2, generator=generator)
    features = torch.randn(batch, coords.shape[1], problem.num_inputs, generator=generator)
    time = torch.rand(batch, generator=generator) if problem.time == "conditioned" else None
    return coords, features, {"time": time, "shape": tuple(shape)}


@every_pair
def test_what_other_rooms_ask_of_a_model(name, problem):
    """Blocks to shard, the flux head and the chart are declared, and are those of the forward."""
    model = make(name, problem)
    coords, features, options = data(problem)
    owned = {id(p) for p in model.parameters()}
    assert all(id(p) in owned for block in model.blocks for p in block.parameters())
    flux = model(coords, features, **options).flux
    assert (flux is None) == (model.flux_head is None)
    zeta = model.chart_coords(coords)
    assert (zeta is None) == (model.chart_kind is None) == (not name.startswith("cato"))
    assert zeta is None or zeta.shape == coords.shape


def test_models_are_named():
    entries = list(MODELS.values())
    assert len({entry.title for entry in entries}) == len(entries)
    assert all(entry.family and entry.reference for entry in entries)


@every_pair
def test_shapes_and_finite_gradients_everywhere(name, problem):
    model = make(name, problem).train()
    coords, features, options = data(problem)
    values, flux = model(coords, features, **options)
    assert values.shape == (2, problem.num_nodes, problem.num_outputs)
    loss = values.square().sum()
    if flux is not None:
        assert flux.shape == (*values.shape, 2)
        loss = loss + flux.square().sum()
    loss.backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{key} is never used"
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().max() > 0, f"{key} does nothing"


@every_pair
def test_a_sample_does_not_see_its_batch_mates(name, problem):
    model = make(name, problem).double()
    coords, features, options = data(problem, batch=3)
    whole = model(coords.double(), features.double(), **double(options)).values
    alone = model(
        coords[1:2].double(), features[1:2].double(), **double(options, slice(1, 2))
    ).values
    torch.testing.assert_close(whole[1:2], alone, rtol=1e-9, atol=1e-11)


def double(options, part=slice(None)):
    time = options["time"]
    return {**options, "time": None if time is None else time[part].double()}


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_settings_survive_the_disk(name, tmp_path):
    problem = GRID if name in GRID_MODELS else CLOUD
    model, config = make(name, problem), small_config(name)
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, tmp_path / "weights")
    saved = json.loads(json.dumps(to_dict(config)))
    other = build_model(name, from_dict(MODELS[name].config_class, saved, "test"), problem).eval()
    other.load_state_dict(load_file(tmp_path / "weights"))
    coords, features, options = data(problem)
    first, second = (m(coords, features, **options).values for m in (model, other))
    assert torch.equal(first, second)


@pytest.mark.parametrize("name", CLOUD_MODELS)
def test_permuting_the_points_permutes_the_outputs_as_declared(name):
    model = make(name, CLOUD_WITH_INPUT).double()
    coords, features, _ = data(CLOUD_WITH_INPUT)
    order = torch.randperm(coords.shape[1], generator=torch.Generator().manual_seed(2))
    straight = model(coords.double(), features.double()).values
    permuted = model(coords[:, order].double(), features[:, order].double()).values
    close = torch.allclose(straight[:, order], permuted, rtol=1e-8, atol=1e-10)
    assert close == MODELS[name].permutation_equivariant


@pytest.mark.parametrize("name", CLOUD_MODELS)
def test_padding_changes_nothing_or_is_refused(name):
    model = make(name, CLOUD_WITH_INPUT).double()
    coords, features, _ = data(CLOUD_WITH_INPUT)
    coords, features = coords.double(), features.double()
    num_points = 33
    mask = torch.arange(coords.shape[1]).expand(len(coords), -1) < num_points
    padded = [x.masked_fill(~mask[..., None], torch.inf) for x in (coords, features)]
    if not MODELS[name].permutation_equivariant:
        with pytest.raises(InputError, match="mask"):
            model(*padded, mask=mask)
        return
    short = model(coords[:, :num_points], features[:, :num_points]).values
    long = model(*padded, mask=mask).values
    torch.testing.assert_close(long[:, :num_points], short, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", GRID_MODELS)
def test_meshes_have_no_padding(name):
    coords, features, options = data(GRID)
    mask = torch.ones(coords.shape[:2], dtype=torch.bool)
    with pytest.raises(InputError, match="mask"):
        make(name, GRID)(coords, features, **options, mask=mask)


@pytest.mark.parametrize("name", GRID_MODELS)
@pytest.mark.parametrize("problem", [GRID, TORUS], ids=["grid", "torus"])
@pytest.mark.parametrize("shape", [(12, 12), (29, 29), (23, 31)])
def test_other_mesh_sizes(name, problem, shape):
    """Trained on one mesh, asked on another: odd, not square, coarser and finer."""
    model = make(name, problem)
    coords, features, options = data(problem, shape)
    values = model(coords, features, **options).values
    assert values.shape == (2, shape[0] * shape[1], 1)
    assert values.isfinite().all()


@pytest.mark.parametrize("name", MODELS)
def test_bf16_autocast_stays_close(name):
    problem = GRID if name in GRID_MODELS else CLOUD
    model = make(name, problem)
    coords, features, options = data(problem)
    exact = model(coords, features, **options).values
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(coords, features, **options).values.float()
    assert (rough - exact).norm() < 0.1 * exact.norm()
    rough.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", MODELS)
def test_hidden_matrices_are_matrices_of_the_model(name):
    problem = GRID if name in GRID_MODELS else CLOUD
    model = make(name, problem)
    own = {id(p) for p in model.parameters()}
    matrices = model.hidden_matrices()
    assert matrices
    assert all(p.ndim == 2 and id(p) in own for p in matrices)
    assert len({id(p) for p in matrices}) == len(matrices)


REFUSED = [
    (name, problem)
    for name, entry in MODELS.items()
    for problem in (GRID, MESH, CLOUD)
    if problem.geometry not in entry.geometries
]


@pytest.mark.parametrize(("name", "problem"), REFUSED)
def test_geometries_that_cannot_work_are_refused_with_the_reason(name, problem):
    why = MODELS[name].why_not_cloud
    with pytest.raises(InputError, match=f"model '{name}' works on") as error:
        build_model(name, small_config(name), problem)
    assert problem.geometry != "cloud" or f"because {why}" in str(error.value)


@pytest.mark.parametrize("name", GRID_MODELS)
def test_conditioned_problems_need_a_time_and_heed_it(name):
    model = make(name, TIMED)
    coords, features, options = data(TIMED)
    with pytest.raises(InputError, match="conditioned on time"):
        model(coords, features, **{**options, "time": None})
    early, late = (
        model(coords, features, **{**options, "time": torch.full((2,), t)}).values
        for t in (0.0, 1.0)
    )
    assert not torch.allclose(early, late)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_compiled_models_give_the_same(name):
    """In a process of its own: the run-time checks of shapes in the tests do not compile."""
    script = f"from test_contract import check_compiled; check_compiled({name!r})"
    subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parent, check=True)


def check_compiled(name):
    problem = GRID if name in GRID_MODELS else CLOUD
    model = make(name, problem)
    coords, features, options = data(problem)
    expected = model(coords, features, **options).values
    compiled = torch.compile(model)(coords, features, **options).values
    torch.testing.assert_close(compiled, expected, rtol=1e-3, atol=1e-4)
    compiled.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


PLACED = {
    "wmt": "its coarsest cell is the whole torus",
    "geo_fno": "every layer sees the place of a node on the mesh",
    "factformer": "every layer sees the place of a node on the mesh",
    "lsm": "patches of six nodes begin at the first",
    "saot": "ReLU of real and imaginary parts depends on the origin",
}
"""Models that know where the first node is, though their axes close."""


@pytest.mark.parametrize("name", [name for name in GRID_MODELS if name not in PLACED])
def test_periodic_problems_close_over_the_seam(name):
    """Moving the data of a torus by half a turn moves the outputs, where no position is told.

    Half a turn is a multiple of what the hierarchies of some models are made of.
    """
    shape = (32, 32)
    model = make(name, TORUS).double()
    coords, features, options = data(TORUS, shape)
    features = features.double().unflatten(1, shape)
    plain, moved = (
        model(torch.zeros_like(coords).double(), f.flatten(1, 2), **options).values
        for f in (features, features.roll((16, 16), (1, 2)))
    )
    expected = plain.unflatten(1, shape).roll((16, 16), (1, 2)).flatten(1, 2)
    torch.testing.assert_close(moved, expected, rtol=1e-7, atol=1e-9)
