"""The schedule against PyTorch's own."""

import pytest
import torch
from torch.optim.lr_scheduler import OneCycleLR

from cato.training.optim import one_cycle


@pytest.mark.parametrize("num_steps", [10, 37, 400])
def test_one_cycle_is_pytorchs(num_steps):
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    scheduler = OneCycleLR(optimizer, max_lr=0.3, total_steps=num_steps)
    for step in range(num_steps):
        group = optimizer.param_groups[0]
        rate, momentum = one_cycle(step, num_steps)
        assert 0.3 * rate == pytest.approx(group["lr"], rel=1e-9)
        assert momentum == pytest.approx(group["betas"][0], rel=1e-9)
        optimizer.step()
        if step + 1 < num_steps:
            scheduler.step()


@pytest.mark.parametrize("num_steps", [1, 2, 3, 4, 7])
def test_short_trainings_have_a_cycle_too(num_steps):
    rates = [one_cycle(step, num_steps)[0] for step in range(num_steps)]
    assert all(0 < rate <= 1 for rate in rates)
