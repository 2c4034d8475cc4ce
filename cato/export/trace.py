"""Tracing: from a surrogate to a graph of PyTorch operations, and why that may fail."""

import re
import warnings
from math import ceil

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from cato.errors import InputError
from cato.export.portable import Arrays, Portable
from cato.surrogate import Surrogate

_MAX_REASON = 220
_OPERATION = re.compile(r"aten(?:::|\.)\w+")
_SIZE = re.compile(r"L\['coords'\]\.size\(\)\[(\d)\]")
_PREAMBLES = ("For more information", "Constraints violated", "Failed to", "Suggested fixes")


class NotExportable(InputError):
    """The exporter or the check after it failed; the message is the reason in one line."""


class Traced:
    """The graphs of a copy of a surrogate, each traced when first needed."""

    def __init__(self, surrogate: Surrogate) -> None:
        self.portable = Portable(surrogate)
        self._graphs: dict[bool, ExportedProgram] = {}

    def graph(self, dynamic_mesh: bool) -> ExportedProgram:
        """The graph for any batch size and, with `dynamic_mesh`, any mesh size."""
        if dynamic_mesh not in self._graphs:
            self._graphs[dynamic_mesh] = _trace(self.portable, dynamic_mesh)
        return self._graphs[dynamic_mesh]


def _trace(portable: Portable, dynamic_mesh: bool) -> ExportedProgram:
    # A batch of one would be taken for a constant.
    example = random_arrays(portable.surrogate, portable.problem.shape, 2)
    num_axes = len(portable.problem.shape)
    sizes = {
        name: dict.fromkeys(range(1 + num_axes * (dynamic_mesh and name != "time")), Dim.DYNAMIC)
        for name in example
    }
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(portable, (), kwargs=example, dynamic_shapes=sizes)
    except Exception as error:  # the exporter's exceptions have no common base class
        raise NotExportable(reason(error)) from error
    _remove_source_paths(program)
    return program


def _remove_source_paths(program: ExportedProgram) -> None:
    """Remove the source location of every operation, which is most of a small file."""
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            for node in module.graph.nodes:
                for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn"):
                    node.meta.pop(key, None)


def random_arrays(
    surrogate: Surrogate, shape: tuple[int, ...], batch: int, regular: bool = False
) -> Arrays:
    """Reproducible random inputs with the scale of the training data, in its domain.

    Args:
        surrogate: Model and normaliser.
        shape: Mesh shape.
        batch: Number of samples.
        regular: Whether the points of a cloud form a lattice, with many equidistant neighbours,
            instead of random positions. Meshes are always regular.
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
        arrays["inputs"] = scaled("inputs", noise)
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
        operation = _OPERATION.search(str(link))
        if operation is not None:
            return f"operation {operation.group().replace('.', '::')}: {_first_line(link)}"
    return _first_line(chain[-1])


def _first_line(error: BaseException) -> str:
    lines = [line.strip(" -\t") for line in str(error).splitlines()]
    useful = [line for line in lines if line and not line.startswith(_PREAMBLES)]
    text = " ".join((useful or lines or [type(error).__name__])[0].split())
    text = _SIZE.sub(r"axis \1", text).split(". If you're ")[0]  # what follows is advice
    return text if len(text) <= _MAX_REASON else f"{text[: _MAX_REASON - 1]}…"
