"""The compiled loop of `cato.kernels.depthwise`."""

import numpy as np

from cato.kernels.jit import compiled


def _weight_gradient(
    x: np.ndarray, grad: np.ndarray, found: np.ndarray, p: int, q: int, k: int
) -> None:
    """Add row k of the stencil's gradient to found[k], all arrays channels-last.

    The innermost loop runs over channels, which are next to each other in memory; a row of nodes
    stays in the first cache for all columns of the stencil.
    """
    num_samples, num_rows, num_columns, num_channels = x.shape
    for b in range(num_samples):
        for i in range(grad.shape[1]):
            row = i + k - p
            if row < 0 or row >= num_rows:
                continue
            for j in range(grad.shape[2]):
                first, last = max(0, q - j), min(found.shape[1], num_columns + q - j)
                for column in range(first, last):
                    for c in range(num_channels):
                        found[k, column, c] += x[b, row, j + column - q, c] * grad[b, i, j, c]


weight_gradient = compiled(_weight_gradient, nogil=True)
