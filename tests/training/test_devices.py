"""Nothing stays on the CPU, and nothing waits for the device, on a device that is not the CPU.

The meta device computes shapes only: reading a number, such as by `.item()`, raises, and so does
mixing it with tensors on the CPU. A whole training step runs there, its backward pass included.

Every forward also runs on fake tensors, which have no data but say that they are on CUDA, so that
it takes the ways of a GPU. PyTorch's builds for CPUs have nothing to switch CUDA devices with; that
of the meta device, which does nothing, takes its place.
"""

import ctypes
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.nn import functional as F

from cato.data.dataset import Dataset, Splits
from cato.models.registry import MODELS, build_model
from cato.problem import Conditioning, Problem
from cato.runs.folder import Run
from cato.runs.settings import build_settings
from cato.training import devices, loop
from cato.training.guard import Guard

GRID = Problem("grid", "grid", (16, 16), ("a",), ("u",))
MESH = Problem("mesh", "mesh", (17, 12), ("a",), ("u", "v"))
TORUS = Problem(
    *("torus", "grid", (16, 16), ("w1", "w2"), ("w",)),
    periodic=(True, True),
    period=(1.0, 1.0),
    time="rollout",
    num_steps=2,
    conditioning=Conditioning(reference="last"),
)
TIMED = Problem(
    *("timed", "mesh", (14, 12), ("a",), ("x", "y")),
    time="conditioned",
    num_steps=2,
    conditioning=Conditioning(reference="node", mesh_inputs=True),
)
SPACE = Problem("space", "mesh", (5, 4, 6), ("a",), ("u",), dimension=3)
CLOUD = Problem("cloud", "cloud", (50,), ("a",), ("s",))
PROBLEMS = (GRID, MESH, TORUS, TIMED, SPACE, CLOUD)

SMALL = {"width": 16, "depth": 2}
SPECIAL = {"wmt": {"width": 18}}
TERMS = {"gradient": 0.2, "flux": 0.2, "consistency": 0.05, "gdl": 0.1}
CASES = [
    pytest.param(name, problem, id=f"{name}-{problem.name}")
    for name, entry in MODELS.items()
    for problem in PROBLEMS
    if problem.geometry in entry.geometries
    and (problem in (GRID, CLOUD) or (name == "cato" or problem is TORUS))
]


CUDA, META = 1, 14  # The kinds of devices in PyTorch's registry of what switches them.
REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"


@pytest.fixture(scope="module")
def cuda_guard():
    if torch.cuda.is_available():
        yield
        return
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * (META + 1)).in_dll(library, REGISTRY)
    guards[CUDA] = guards[META]
    yield
    guards[CUDA] = None


@pytest.fixture
def no_autocast(monkeypatch):
    """The meta device has none."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())


class OnMeta:
    """What a training asks of Fabric, on the meta device."""

    device = torch.device("meta")
    world_size, global_rank, is_global_zero = 1, 0, True

    def setup_module(self, module):
        return module.to(self.device)

    def setup_optimizers(self, *optimizers):
        return optimizers if len(optimizers) > 1 else optimizers[0]

    def to_device(self, batch):
        if isinstance(batch, torch.Tensor):
            return batch.to(self.device)
        return type(batch)(*(None if x is None else x.to(self.device) for x in batch))

    def no_backward_sync(self, module, enabled):
        return nullcontext()

    def autocast(self):
        return nullcontext()

    def backward(self, total):
        total.backward()


def dataset(problem, count=6):
    """Bent meshes, one for each sample, and random fields."""
    rng = torch.Generator().manual_seed(0)
    if problem.geometry == "cloud":
        coords = torch.rand(count, *problem.shape, 2, generator=rng)
    else:
        axes = [
            torch.arange(n) / (n if wraps else n - 1)
            for n, wraps in zip(problem.shape, problem.periodic, strict=True)
        ]
        coords = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)
        if problem.geometry == "mesh":
            coords = coords + 0.02 * torch.rand(count, *coords.shape, generator=rng)
    frames = () if problem.time == "steady" else (problem.num_steps,)
    inputs = torch.randn(count, *problem.shape, problem.num_inputs, generator=rng)
    targets = torch.randn(count, *frames, *problem.shape, problem.num_outputs, generator=rng)
    return Dataset.from_arrays(problem, coords.numpy(), inputs.numpy(), targets.numpy())


def settings(name, problem, **train):
    known = MODELS[name].config_class.__dataclass_fields__
    model = {key: value for key, value in SMALL.items() if key in known} | SPECIAL.get(name, {})
    has_flux = name.startswith("cato")
    terms = {key: w if has_flux or key in ("gradient", "gdl") else 0.0 for key, w in TERMS.items()}
    loss = dict.fromkeys(TERMS, 0.0) if problem.geometry == "cloud" else terms
    train = {"steps": 100, "batch_size": 2, "average": 0.9} | train
    return build_settings("darcy", "smoke", name, {"model": model, "loss": loss, "train": train})


def training_on_meta(name, problem, **train):
    config, data = settings(name, problem, **train), dataset(problem)
    problem = data.problem
    run = Run(Path(), config, problem, {})
    splits = Splits(problem, {"train": data, "validation": data})
    training = loop.Training(run, splits, OnMeta(), loop.new_model(config, problem))
    training.state.num_steps = 100
    return training


def one_each(cases):
    """One problem for each model, all for CATO."""
    seen = set()
    for case in cases:
        name = case.values[0]
        if name == "cato" or name not in seen:
            yield case
        seen.add(name)


def forward_on_cuda(name, problem):
    """A prediction of fake tensors; those that the model does not own or get stay on the CPU."""
    config = settings(name, problem)
    model = build_model(name, config.model, problem)
    coords = dataset(problem, 2).batch(torch.arange(2)).coords.expand(2, -1, -1)
    features = torch.rand(2, problem.num_nodes, model.problem.num_inputs)
    time = torch.rand(2) if problem.has_time else None
    mode = FakeTensorMode()
    owned = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with mode:
        owned, given = (
            {key: mode.from_tensor(x).to("cuda:0") for key, x in tensors.items() if x is not None}
            for tensors in (owned, {"coords": coords, "features": features, "time": time})
        )
        return functional_call(model, owned, (), given)


@pytest.mark.parametrize(("name", "problem"), one_each(CASES))
def test_a_forward_stays_on_cuda(name, problem, cuda_guard):
    values, flux = forward_on_cuda(name, problem)
    assert values.device == torch.device("cuda:0")
    assert values.shape == (2, problem.num_nodes, problem.num_outputs)
    assert flux is None or flux.device == values.device


@pytest.mark.parametrize(
    "leak", [lambda x: x + torch.ones(x.shape[-1]), lambda x: x * float(x.sum())]
)
def test_a_forward_that_leaves_cuda_is_found(monkeypatch, leak, cuda_guard):
    """The test above can fail."""
    monkeypatch.setattr(F, "gelu", leak)
    with pytest.raises(RuntimeError):
        forward_on_cuda("cato", GRID)


@pytest.mark.parametrize("name", ["cato", "cato_pc", "transolver"])
def test_attention_on_cuda_can_take_a_fused_kernel(name, monkeypatch, cuda_guard):
    """PyTorch's need queries, keys and values of one type, 4 axes, dense channels and no mask."""
    found, original = [], F.scaled_dot_product_attention

    def recorded(*tensors, **options):
        found.append((tensors, options))
        return original(*tensors, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", recorded)
    forward_on_cuda(name, CLOUD if name == "cato_pc" else GRID)
    assert found
    for tensors, options in found:
        assert len({x.dtype for x in tensors}) == 1
        assert all(x.ndim == 4 and x.stride(-1) == 1 for x in tensors)
        assert not options.keys() - {"scale"}


@pytest.mark.usefixtures("no_autocast")
@pytest.mark.parametrize(("name", "problem"), CASES)
def test_a_training_step_stays_on_its_device(name, problem):
    training = training_on_meta(name, problem)
    for step in range(2):  # the second one has the optimiser's state and an average
        training.step()
        assert len(training._unread) == step + 1
    tensors = [*training.surrogate.state_dict().values(), *training.average.values]
    state = [s.values() for o in training.raw_optimizers for s in o.state.values()]
    moments = [x for values in state for x in values if x.ndim]
    assert {x.device.type for x in [*tensors, *moments]} == {"meta"}


@pytest.mark.usefixtures("no_autocast")
@pytest.mark.parametrize(
    "train", [{"optimizer": "muon"}, {"remat": True}, {"frames_per_step": 1}, {"clip": 0.0}]
)
def test_so_does_a_step_with_other_settings(train):
    problem = TIMED if "frames_per_step" in train else MESH
    training_on_meta("cato", problem, **train).step()


@pytest.mark.usefixtures("no_autocast")
def test_a_number_that_is_read_in_a_step_is_found(monkeypatch):
    """The tests above can fail."""
    training = training_on_meta("cato", MESH)
    for leak in (lambda total: total.item(), lambda total: total + torch.ones(2).sum()[None]):
        monkeypatch.setattr(OnMeta, "backward", lambda self, total, leak=leak: leak(total))
        with pytest.raises((RuntimeError, NotImplementedError)):
            training.step()


def test_the_loop_reads_losses_now_and_then_only(config_with, monkeypatch, tmp_path):
    """The log is the same as with a read in every step."""
    from cato.training.train import train

    config = config_with(train={"steps": 23, "batch_size": 2})  # 12 steps are an epoch
    logs = []
    for always in (True, False):
        original = loop.Training.__init__

        def start(self, *arguments, always=always, original=original):
            original(self, *arguments)
            self._reads_always = always

        monkeypatch.setattr(loop.Training, "__init__", start)
        logs.append(train(config, tmp_path / str(always)).log())
        monkeypatch.undo()
    timeless = [
        [{k: v for k, v in line.items() if "second" not in k} for line in log] for log in logs
    ]
    assert timeless[0] == timeless[1]


@pytest.mark.parametrize(
    ("kind", "has_bf16", "train", "expected"),
    [
        ("cuda", True, {}, ("bf16-mixed", True)),
        ("cuda", False, {}, ("32-true", True)),
        ("cuda", True, {"precision": "32-true", "compile": False}, ("32-true", False)),
        ("cuda", True, {"mesh_parallel": 2}, ("bf16-mixed", False)),
        ("cpu", True, {}, ("32-true", False)),
    ],
)
def test_gpus_compile_and_take_bf16_where_they_have_it(
    monkeypatch, kind, has_bf16, train, expected
):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: has_bf16)
    monkeypatch.setattr(devices, "find_spec", lambda name: name)
    config = settings("cato", GRID, **train).train
    assert (devices.precision_of(config, kind), devices.is_compiled(config, kind)) == expected


def test_a_bad_step_is_undone_and_so_are_all_after_it():
    layer = torch.nn.Linear(3, 2)
    guard, seen = Guard(layer), []
    for is_good in (True, False, True):
        with guard.undoing_unless(torch.tensor(is_good)), torch.no_grad():
            layer.weight += 1 if is_good else torch.nan
        seen.append(layer.weight.detach().clone())
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])
