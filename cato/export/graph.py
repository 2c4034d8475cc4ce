"""The graph of PyTorch operations that is exported: its arrays, its tracing, and why that may fail.

Physical values on the mesh in, physical values on the mesh out. Arrays have the layout of files:
samples first, mesh axes, channels last. The mesh size follows from the inputs if the model allows
any.

    coords  (batch, *mesh, D)
    inputs  (batch, *mesh, C_in), if the problem has input channels
    time    (batch,), t ∈ [0, 1], if the problem is conditioned on time
    outputs (batch, *mesh, C_out), for rollouts (batch, steps, *mesh, C_out)

A rollout is exported as a whole: given frames in, all later frames out. A conditioned problem takes
one time per sample, also between the frames of the training; for all frames of a sample, pass a
batch of its copies.

Clouds are exported without mask: all clouds of a batch have the same number of points.
"""

import re
import warnings
from copy import deepcopy
from math import ceil
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from cato.data.rollout import RolloutInputs, next_past
from cato.errors import InputError
from cato.problem import Problem
from cato.surrogate import Surrogate

Arrays = dict[str, Tensor]  # Inputs of a file by name.
_MAX_REASON = 220
_OPERATION = re.compile(r"aten(?:::|\.)\w+")
_SIZE = re.compile(r"L\['coords'\]\.size\(\)\[(\d)\]")
_PREAMBLES = ("For more information", "Constraints violated", "Failed to", "Suggested fixes")


class NotExportable(InputError):
    """The exporter or the check after it failed; the message is the reason in one line."""


class Portable(nn.Module):
    """A copy of a surrogate on the CPU, without gradients, that takes arrays with mesh axes."""

    def __init__(self, surrogate: Surrogate) -> None:
        super().__init__()
        self.surrogate = deepcopy(surrogate).cpu().eval().requires_grad_(False)
        self.surrogate.model.freeze()

    @property
    def problem(self) -> Problem:
        return self.surrogate.problem

    def forward(
        self,
        coords: Float[Tensor, "B *mesh D"],
        inputs: Float[Tensor, "B *mesh C_in"] | None = None,
        time: Float[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B *T_mesh C_out"]:
        shape = tuple(coords.shape[1:-1])
        if inputs is None:
            inputs = coords[..., :0]
        # Tells the exporter that all arrays have the same sizes.
        assert inputs.shape[:-1] == coords.shape[:-1]
        nodes, features = coords.flatten(1, -2), inputs.flatten(1, -2)
        if self.problem.has_time:
            solution = self.surrogate(nodes, features, time=time, shape=shape).values
        elif self.problem.time == "rollout" and torch.compiler.is_exporting():
            solution = self._loop(nodes, features, shape)
        else:
            solution = self.surrogate.solve(nodes, features, shape=shape)
        return solution.unflatten(-2, shape)

    def _loop(
        self,
        nodes: Float[Tensor, "B N D"],
        inputs: Float[Tensor, "B N C_in"],
        shape: tuple[int, ...],
    ) -> Float[Tensor, "B T N C_out"]:
        """`Surrogate.solve` as a loop in the graph, which contains the model once, not T times."""

        problem = self.problem
        parts = RolloutInputs.of(problem, inputs)
        known = torch.zeros(problem.num_steps)
        if problem.static or problem.controls:
            known = torch.stack([parts.known(problem, k) for k in range(problem.num_steps)])

        def step(past: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
            seen = torch.cat((known, past), dim=-1) if known.ndim else past
            frame = self.surrogate(nodes, seen, shape=shape).values
            return next_past(past, frame), frame.clone()

        _, frames = scan(step, parts.past, known)
        return frames.movedim(0, 1)


def mesh_axes(problem: Problem) -> tuple[str, ...]:
    """Names of the mesh axes."""
    if problem.geometry == "cloud":
        return ("points",)
    return tuple(f"n{axis}" for axis in range(1, len(problem.shape) + 1))


def layout(problem: Problem) -> dict[str, Any]:
    """Axes and channels of the arrays of a file, JSON-ready."""
    mesh = mesh_axes(problem)
    axes = ["batch", *mesh, "channel"]
    arrays: dict[str, Any] = {
        "coords": {"axes": axes, "channels": list("xyz"[: problem.dimension])}
    }
    if problem.num_inputs:
        arrays["inputs"] = {"axes": axes, "channels": list(problem.inputs)}
    if problem.has_time:
        arrays["time"] = {"axes": ["batch"], "range": [0.0, 1.0]}
    steps = ["step"] if problem.time == "rollout" else []
    outputs = {"axes": ["batch", *steps, *mesh, "channel"], "channels": list(problem.outputs)}
    return {"inputs": arrays, "outputs": {"outputs": outputs}}


def computes(problem: Problem) -> str:
    """Description of the outputs."""
    if problem.time == "rollout":
        return f"the whole rollout of {problem.num_steps} steps"
    if problem.time == "conditioned":
        spread = (
            f"at {', '.join(f'{t:.6g}' for t in problem.times)}"
            if problem.times
            else "evenly spaced in it"
        )
        return (
            f"the solution at the given time, t in [0, 1]; "
            f"the {problem.num_steps} training frames are {spread}"
        )
    return "the steady solution"


def trace(portable: Portable, dynamic_mesh: bool) -> ExportedProgram:
    """The graph for any batch size and, with `dynamic_mesh`, any mesh size."""
    # A batch of one would be taken for a constant.
    example = random_arrays(portable.surrogate, portable.problem.shape, 2)
    num_axes = len(portable.problem.shape)
    sizes = {
        name: dict.fromkeys(range(1 + num_axes * (dynamic_mesh and name != "time")), Dim.DYNAMIC)
        for name in example
    }
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            program = torch.export.export(portable, (), kwargs=example, dynamic_shapes=sizes)
    except Exception as error:  # the exporter's exceptions have no common base class
        raise NotExportable(reason(error)) from error
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            for node in module.graph.nodes:  # source locations are most of a small file
                for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn"):
                    node.meta.pop(key, None)
    return program


def random_arrays(
    surrogate: Surrogate, shape: tuple[int, ...], batch: int, regular: bool = False
) -> Arrays:
    """Reproducible random inputs with the scale of the training data, in its domain.

    Meshes are always regular. If `regular`, the points of a cloud form a lattice too, with many
    equidistant neighbours, instead of random positions.
    """
    problem, normaliser = surrogate.problem, surrogate.normaliser
    generator = torch.Generator().manual_seed(0)

    def scaled(name: str, values: Tensor) -> Tensor:
        std, mean = (normaliser.get_buffer(f"{name}_{m}").cpu() for m in ("std", "mean"))
        return mean + std * values

    if problem.geometry == "cloud" and not regular:
        unit = torch.rand(batch, *shape, problem.dimension, generator=generator)
    else:
        unit = _lattice(shape, problem.dimension).repeat(batch, *len(shape) * [1], 1)
    if surrogate.coords is not None:
        low, high = surrogate.coords.cpu().aminmax(dim=0)
        coords = low + (high - low) * unit
    else:
        coords = scaled("coords", unit)
    arrays = {"coords": coords}
    if problem.num_inputs:
        noise = torch.randn(batch, *shape, problem.num_inputs, generator=generator)
        mean, std = (values.cpu() for values in normaliser.of_inputs(problem))
        arrays["inputs"] = mean + std * noise
    if problem.has_time:
        arrays["time"] = torch.rand(batch, generator=generator)
    return arrays


def _lattice(shape: tuple[int, ...], dimension: int) -> Tensor:
    """A lattice in the unit cube with `shape` nodes per axis, or `shape[0]` points of a cloud."""
    is_cloud = len(shape) < dimension
    sides = dimension * [ceil(shape[0] ** (1 / dimension))] if is_cloud else shape
    axes = [torch.linspace(0, 1, n) for n in sides]
    nodes = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
    return nodes.flatten(0, -2)[: shape[0]] if is_cloud else nodes


def reason(error: BaseException) -> str:
    """An exporter's error in one line, with the unsupported operation if it names one.

    Exporters wrap errors in errors with pages of advice; the innermost one has the cause.
    """
    chain = [error]
    while (inner := chain[-1].__cause__) is not None:
        chain.append(inner)
    for link in reversed(chain):
        if operation := _OPERATION.search(str(link)):
            return f"operation {operation.group().replace('.', '::')}: {_first_line(link)}"
    return _first_line(chain[-1])


def _first_line(error: BaseException) -> str:
    lines = [line.strip(" -\t") for line in str(error).splitlines()]
    useful = [line for line in lines if line and not line.startswith(_PREAMBLES)]
    text = " ".join((useful or lines or [type(error).__name__])[0].split())
    text = _SIZE.sub(r"axis \1", text).split(". If you're ")[0]  # what follows is advice
    return text if len(text) <= _MAX_REASON else f"{text[: _MAX_REASON - 1]}…"
