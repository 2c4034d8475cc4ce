"""Muon: steps along the nearest orthogonal matrix of the momentum (Jordan et al., 2024).

    M ← μ M + (1 − μ) G,    W ← (1 − λη) W − 0.2 η √max(rows, columns) · orth((1 − μ) G + μ M)

orth(X) replaces the singular values of X by numbers near 1, with five steps of a quintic iteration,
X ← a X + (b A + c A²) X with A = X Xᵀ. The factor gives an update the size of one of AdamW (Liu et
al., 2025), so that both share learning rate and weight decay.

`torch.optim.Muon`, in PyTorch since 2.9, is the same algorithm, one matrix after another and in
bfloat16. The small matrices of a model for a laptop take a tenth of a training step there. Here
matrices of one shape are multiplied together, on CPUs in float32, which they are faster at.
"""

from collections import defaultdict
from collections.abc import Iterable
from math import sqrt

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b and c of Jordan et al.: singular values end between 0.7 and 1.2, the small ones fast."""
NUM_ITERATIONS = 5
MOMENTUM = 0.95
SIZE_OF_ADAMW = 0.2
_TINY = 1e-7  # Least norm of an update.


class Muon(Optimizer):
    """Optimises matrices."""

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": MOMENTUM})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step for all matrices that have a gradient."""
        for group in self.param_groups:
            rate, momentum = group["lr"], group["momentum"]
            updates: dict[nn.Parameter, Tensor] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    state = self.state[matrix]
                    if "momentum_buffer" not in state:
                        state["momentum_buffer"] = torch.zeros_like(matrix.grad)
                    average = state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)
                    updates[matrix] = matrix.grad.lerp(average, momentum)
            for matrix, direction in zip(updates, orthogonalised(updates.values()), strict=True):
                size = SIZE_OF_ADAMW * sqrt(max(matrix.shape))
                matrix.mul_(1 - rate * group["weight_decay"]).add_(direction, alpha=-rate * size)


def orthogonalised(matrices: Iterable[Tensor]) -> list[Tensor]:
    """orth(X) of each matrix; those of one shape are multiplied together."""
    by_shape: defaultdict[tuple[int, ...], list[tuple[int, Tensor]]] = defaultdict(list)
    for number, matrix in enumerate(matrices):
        wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT
        by_shape[wide.shape].append((number, matrix))
    found: dict[int, Tensor] = {}
    for shape, group in by_shape.items():
        wide = torch.stack([x if x.shape == shape else x.mT for _, x in group])
        for (number, x), direction in zip(group, _orthogonalised(wide), strict=True):
            found[number] = (direction if x.shape == shape else direction.mT).to(x.dtype)
    return [found[number] for number in range(len(found))]


def _orthogonalised(x: Tensor) -> Tensor:
    """orth of a stack of matrices that are not higher than wide."""
    a, b, c = COEFFICIENTS
    if x.device.type != "cpu":
        x = x.bfloat16()
    # The norm bounds the largest singular value, for which the iteration needs at most 1.
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp_min(_TINY)
    for _ in range(NUM_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x
