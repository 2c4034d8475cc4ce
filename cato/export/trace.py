"""From a surrogate to a graph of PyTorch's operations, and why that may not work."""

import re
import warnings

import torch
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from cato.errors import InputError
from cato.export.examples import random_arrays
from cato.export.portable import Arrays, Portable
from cato.surrogate import Surrogate

_LONGEST_REASON = 220
_OPERATION = re.compile(r"aten(?:::|\.)\w+")
_SIZE = re.compile(r"L\['coords'\]\.size\(\)\[(\d)\]")
_PREAMBLES = ("For more information", "Constraints violated", "Failed to", "Suggested fixes")


class NotExportable(InputError):
    """The exporter, or the check after it, refuses; the message is its reason in one line."""


class Traced:
    """The graphs of a surrogate, each traced when first asked for.

    Args:
        surrogate: Of which a copy is traced.
    """

    def __init__(self, surrogate: Surrogate) -> None:
        self.portable = Portable(surrogate)
        self._graphs: dict[bool, ExportedProgram] = {}

    def graph(self, dynamic_mesh: bool) -> ExportedProgram:
        """For any batch size and, if asked for, any mesh size."""
        if dynamic_mesh not in self._graphs:
            # A batch of one would be taken for a constant.
            example = random_arrays(self.portable.surrogate, self.portable.problem.shape, 2)
            self._graphs[dynamic_mesh] = trace(self.portable, example, dynamic_mesh)
        return self._graphs[dynamic_mesh]


def trace(portable: Portable, example: Arrays, dynamic_mesh: bool) -> ExportedProgram:
    """The graph for any batch size and, if asked for, any mesh size.

    Args:
        portable: What to trace, on the CPU.
        example: Inputs to trace with; a batch of one would be taken for a constant.
        dynamic_mesh: Whether the mesh axes may have any size.
    """
    num_axes = len(portable.problem.shape)
    sizes = {
        name: dict.fromkeys(range(1 + num_axes * (dynamic_mesh and name != "time")), Dim.DYNAMIC)
        for name in example
    }
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(portable, (), kwargs=example, dynamic_shapes=sizes)
    except Exception as error:  # the exporter has no common base of its exceptions
        raise NotExportable(reason(error)) from error
    _forget_sources(program)
    return program


def _forget_sources(program: ExportedProgram) -> None:
    """Remove where in whose folders every operation was written: most of a small file."""
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            for node in module.graph.nodes:
                for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn"):
                    node.meta.pop(key, None)


def reason(error: BaseException) -> str:
    """What an exporter complains about, in one line: the operation in the way, where it names one.

    Exporters wrap errors into errors with pages of advice; the innermost says what happened.
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
    told = [line for line in lines if line and not line.startswith(_PREAMBLES)]
    words = " ".join((told or lines or [type(error).__name__])[0].split())
    words = _SIZE.sub(r"axis \1", words).split(". If you're ")[0]  # then comes advice
    return words if len(words) <= _LONGEST_REASON else f"{words[: _LONGEST_REASON - 1]}…"
