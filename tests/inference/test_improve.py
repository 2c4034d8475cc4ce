"""What would help most: gains follow from the errors of samples, fields and trials."""

from dataclasses import replace

import pytest
import torch

from cato.inference.evaluate import Evaluation
from cato.inference.improve import _bounds, _fields, _samples
from cato.runs.folder import Run


def evaluation(errors):
    return Evaluation(torch.tensor(errors), None, None, {}, {}, None, 0.1)


def test_samples_that_dominate_are_named():
    (found,) = _samples(evaluation([0.01] * 9 + [0.5] + [0.01] * 9 + [0.4]))
    assert found.gain == pytest.approx(1 - 0.2 / 1.08)
    assert "(9, 19) have 83% of the sum" in found.evidence
    (even,) = _samples(evaluation([0.01] * 20))
    assert even.gain == pytest.approx(0, abs=1e-6)
    assert not _samples(evaluation([0.01] * 9))


def test_the_worst_field_is_named():
    fields = {name: {"relative_l2": e} for name, e in (("u", 0.01), ("v", 0.02), ("s", 0.3))}
    (found,) = _fields({"fields": fields})
    assert found.what.startswith("the field s")
    assert found.gain == pytest.approx(1 - 0.045 / 0.33)
    assert not _fields({"fields": {"u": {"relative_l2": 0.1}}})


def test_training_and_test_error_bound_what_samples_and_minutes_do(config_with, tmp_path):
    run = Run(tmp_path, config_with(), None, {})
    run.write_log([{"epoch": 1, "step": 8, "validation": 0.2, "learning_rate": 0, "seconds": 1}])
    samples, rest = _bounds(run, {"training_error": 0.05, "relative_l2": 0.2})
    assert (samples.gain, rest.gain) == pytest.approx((0.75, 0.25))
    assert samples.is_bound
    assert rest.what == "more minutes or a larger model"
    trial = {"model": run.config.model_name, "validation": 0.4, "steps": 2, "seconds": 1}
    tried = replace(run, record={"trials": [trial]})
    minutes = _bounds(tried, {"training_error": 0.05, "relative_l2": 0.2})[1]
    assert minutes.gain == pytest.approx(1 - 2**-0.5)  # halved by four times the steps
