"""Checks of an exported file against PyTorch: the inputs, the comparison, the run time."""

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from cato.export.formats import Program
from cato.export.portable import Arrays, Portable
from cato.export.trace import NotExportable, random_arrays, reason
from cato.physics import relative_l2
from cato.surrogate import Surrogate

TOLERANCE = 1e-4
"""Maximum relative L2 difference of a sample from PyTorch."""
_TIMED_CALLS = 5


class Case(NamedTuple):
    """Named inputs for a comparison."""

    name: str
    arrays: Arrays


def cases(surrogate: Surrogate, real: Sequence[Arrays], dynamic_mesh: bool) -> Iterator[Case]:
    """Random inputs in two batch sizes, real samples and, if allowed, other meshes."""
    shape = surrogate.problem.shape
    for batch in (1, 3):
        yield Case(f"random, batch {batch}", random_arrays(surrogate, shape, batch))
    if surrogate.problem.geometry == "cloud":  # equidistant neighbours must be ordered alike
        yield Case("regular points", random_arrays(surrogate, shape, 1, regular=True))
    for number, arrays in enumerate(real):
        if dynamic_mesh or arrays["coords"].shape[1:-1] == shape:
            yield Case(f"real, sample {number}", arrays)
    if dynamic_mesh:
        # Odd and even, larger and smaller, another aspect ratio: what a trace may have fixed.
        for other in (
            tuple(n + 1 for n in shape),
            (2 * shape[0], *shape[1:]),
            tuple(max(3, 3 * n // 4) for n in shape),
        ):
            name = f"random, mesh {' × '.join(map(str, other))}"
            yield Case(name, random_arrays(surrogate, other, 2))


@torch.no_grad()
def largest_difference(portable: Portable, program: Program, case: Case) -> float:
    """Largest relative L2 difference of a sample; raises if it exceeds `TOLERANCE`."""
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
            f"the tolerance is {TOLERANCE:.0e}"
        )
    return difference


@torch.no_grad()
def milliseconds(program: Callable[[], Tensor]) -> float:
    """Median run time of a call."""
    program()  # the first call compiles and allocates
    seconds = []
    for _ in range(_TIMED_CALLS):
        started = time.perf_counter()
        program()
        seconds.append(time.perf_counter() - started)
    return 1000 * median(seconds)
