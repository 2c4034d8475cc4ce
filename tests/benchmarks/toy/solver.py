"""The exact solution: a wave sin jπx sin kπy of the source gives 1/π²(j² + k²) of itself."""

import numpy as np
from cato.benchmarks.toy.benchmark import WAVES


def solve(amplitudes: np.ndarray, axis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Source and solution at the nodes of a square grid."""
    source = solution = np.zeros((len(axis), len(axis)))
    for amplitude, (j, k) in zip(amplitudes, WAVES, strict=True):
        wave = amplitude * np.outer(np.sin(j * np.pi * axis), np.sin(k * np.pi * axis))
        source = source + wave
        solution = solution + wave / (np.pi**2 * (j**2 + k**2))
    return source, solution
