"""Whether an exported file gives what the surrogate gives, and how fast."""

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from cato.export.portable import Arrays, Portable
from cato.export.trace import NotExportable, reason
from cato.physics import relative_l2
from cato.surrogate import Surrogate

TOLERANCE = 1e-4
"""Largest relative L2 difference of a sample from PyTorch's solution."""
_TIMED_CALLS = 5

Program = Callable[[Arrays], Tensor]
"""A loaded file."""


class Case(NamedTuple):
    """Inputs on which a file is compared with its surrogate."""

    name: str
    arrays: Arrays


def cases(surrogate: Surrogate, real: Arrays | None, dynamic_mesh: bool) -> Iterator[Case]:
    """Random inputs in several batch sizes, a real sample, and where allowed other meshes."""
    shape = surrogate.problem.shape
    for batch in (1, 3):
        yield Case(f"random, batch {batch}", random_arrays(surrogate, shape, batch))
    if real is not None and (dynamic_mesh or real["coords"].shape[1:-1] == shape):
        yield Case("real", real)
    if dynamic_mesh:
        # Odd and even, larger and smaller, of another aspect: what a trace may have fixed.
        for other in (
            tuple(n + 1 for n in shape),
            (2 * shape[0], *shape[1:]),
            tuple(max(3, 3 * n // 4) for n in shape),
        ):
            name = f"random, mesh {' × '.join(map(str, other))}"
            yield Case(name, random_arrays(surrogate, other, 2))


def random_arrays(surrogate: Surrogate, shape: tuple[int, ...], batch: int) -> Arrays:
    """Inputs of the size of the training's on nodes in the training's domain; always the same."""
    problem, normaliser = surrogate.problem, surrogate.normaliser
    generator = torch.Generator().manual_seed(0)

    def spread(name: str, values: Tensor) -> Tensor:
        std, mean = (normaliser.get_buffer(f"{name}_{m}").cpu() for m in ("std", "mean"))
        return mean + std * values

    if problem.geometry == "cloud":
        unit = torch.rand(batch, *shape, problem.dimension, generator=generator)
    else:
        axes = [torch.linspace(0, 1, n) for n in shape]
        unit = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).repeat(
            batch, *len(shape) * [1], 1
        )
    if surrogate.coords is not None:
        low, high = surrogate.coords.cpu().aminmax(dim=0)
        coords = low + (high - low) * unit
    else:
        coords = spread("coords", unit)
    arrays = {"coords": coords}
    if problem.num_inputs:
        noise = torch.randn(batch, *shape, problem.num_inputs, generator=generator)
        arrays["inputs"] = spread("inputs", noise)
    if problem.has_time:
        arrays["time"] = torch.rand(batch, generator=generator)
    return arrays


@torch.no_grad()
def largest_difference(portable: Portable, program: Program, case: Case) -> float:
    """Largest relative L2 difference of a sample; more than `TOLERANCE` is refused."""
    expected = portable(**case.arrays)
    try:
        found = program(case.arrays)
    except Exception as error:
        raise NotExportable(f"{case.name}: the file cannot be run ({reason(error)})") from error
    if found.shape != expected.shape:
        raise NotExportable(
            f"{case.name}: the file gives {tuple(found.shape)}, PyTorch {tuple(expected.shape)}"
        )
    difference = relative_l2(found.flatten(1, -2), expected.flatten(1, -2)).max().item()
    if not difference <= TOLERANCE:  # NaN too
        raise NotExportable(
            f"{case.name}: the file differs from PyTorch by {difference:.1e}, "
            f"allowed is {TOLERANCE:.0e}"
        )
    return difference


@torch.no_grad()
def milliseconds(program: Callable[[], Tensor]) -> float:
    """Median time of a call."""
    program()  # the first call compiles and allocates
    seconds = []
    for _ in range(_TIMED_CALLS):
        began = time.perf_counter()
        program()
        seconds.append(time.perf_counter() - began)
    return 1000 * median(seconds)
