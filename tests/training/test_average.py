"""The exponential average of the weights."""

import pytest
import torch
from torch import nn

from cato.runs.checkpoint import load_checkpoint
from cato.training.average import WeightAverage
from cato.training.train import train


def test_it_is_the_weighted_sum_of_all_weights_so_far():
    module, decay, path = nn.Linear(2, 3), 0.6, []
    average = WeightAverage(module, decay)
    expected = None
    for step in range(12):
        with torch.no_grad():
            module.weight.copy_(torch.full((3, 2), float(step**2)))
        average.update(step)
        path.append(float(step**2))
        factor = min(decay, (1 + step) / (10 + step))
        expected = path[0] if expected is None else factor * expected + (1 - factor) * path[-1]
    torch.testing.assert_close(average.values[0], torch.full((3, 2), expected))


def test_the_weights_are_put_back_even_after_an_error():
    module = nn.Linear(2, 2)
    average = WeightAverage(module, 0.9)
    average.update(0)
    with torch.no_grad():
        module.weight.add_(1)
    before = module.weight.detach().clone()

    def fail():
        with average.in_place():
            torch.testing.assert_close(module.weight, before - 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    torch.testing.assert_close(module.weight, before, rtol=0, atol=0)


def test_the_best_checkpoint_holds_the_average_and_the_last_one_both(tmp_path, config_with):
    run = train(config_with(train={"steps": 5, "average": 0.9}), tmp_path / "run")
    best, last = (load_checkpoint(run.checkpoints, kind).tensors for kind in ("best", "last"))
    averages = {n.removeprefix("average/"): t for n, t in last.items() if n.startswith("average/")}
    assert averages.keys() == best.keys()
    for name, tensor in best.items():
        torch.testing.assert_close(tensor, averages[name], rtol=0, atol=0)
    assert any(not torch.equal(best[name], last[name]) for name in best)


def test_without_it_nothing_is_kept(tmp_path, config_with):
    run = train(config_with(train={"steps": 2}), tmp_path / "run")
    assert not any(
        n.startswith("average/") for n in load_checkpoint(run.checkpoints, "last").tensors
    )
