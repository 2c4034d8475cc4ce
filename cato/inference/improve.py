"""What would lower the error of a run most: each change with the number that says so.

`cato advise RUN` has predictions of more samples, minutes and width. Without them the run itself
has bounds: more samples remove at most the difference between test and training error, more
minutes or a larger model at most the training error. Samples and fields that dominate the error,
and the trials of other models, are looked at in either case.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from statistics import median
from typing import Any

from cato.inference.evaluate import Evaluation
from cato.models.registry import candidates, model_class
from cato.runs.folder import Run

ADVICE = "advice.json"
"""In a run folder, written by `cato advise RUN`."""
CLOSE = 1.5
"""Expected errors of trials that are closer than this ratio may change their order in a whole
training."""
WORST_SHARE = 0.1  # Of the samples: those that may dominate the error.
LISTED = 5  # Numbers of samples that are named.


@dataclass(frozen=True)
class Improvement:
    """A change, and the share of the error that it would remove."""

    what: str
    gain: float | None  # None if it is not known.
    is_bound: bool  # Whether the gain is the most that the change can remove.
    evidence: str

    @property
    def shown_gain(self) -> str:
        """The gain in words."""
        if self.gain is None:
            return "unknown"
        return f"{'at most' if self.is_bound else 'about'} {self.gain:.0%}"


def improvements(run: Run, figures: Mapping[str, Any], evaluation: Evaluation) -> list[Improvement]:
    """All changes, the largest gain first; `figures` and `evaluation` are those of its test."""
    path = run.source / ADVICE
    found = _predicted(run.read_figures(path)) if path.exists() else _bounds(run, figures)
    found += [*_samples(evaluation), *_fields(figures), *_models(run)]
    return sorted(found, key=lambda one: -1.0 if one.gain is None else one.gain, reverse=True)


def _predicted(advice: Mapping[str, Any]) -> list[Improvement]:
    """The changes that `cato advise RUN` has tried."""
    expected = advice["expected"]
    return [
        Improvement(
            change["what"],
            max(0.0, 1 - change["error"]["median"] / expected["median"])
            if expected and change["error"]
            else None,
            False,
            change["evidence"],
        )
        for change in advice["changes"]
    ]


def _bounds(run: Run, figures: Mapping[str, Any]) -> list[Improvement]:
    """What follows from the training error, and of model auto from the trial of the model."""
    seen, error = figures["training_error"], figures["relative_l2"]
    if not seen or not error:
        return []
    advise = f"`cato advise {run.folder}` predicts how much" if run.pretrained is None else ""
    errors = f"training error {seen:.2%}, test error {error:.2%}"
    share = min(1.0, seen / error)
    return [
        Improvement("more samples", 1 - share, True, f"{errors}; {advise}".strip("; ")),
        _more_minutes(run) or Improvement("more minutes or a larger model", share, True, errors),
    ]


def _more_minutes(run: Run) -> Improvement | None:
    """From the decay of the error between the trial of the model and its whole training."""
    log_lines = [line for line in run.log() if "validation" in line]
    if not log_lines:  # cross-validated
        return None
    best, last = min(line["validation"] for line in log_lines), log_lines[-1]["step"]
    for trial in run.trials:
        is_ours = trial["model"] == run.config.model_name and trial["validation"]
        if is_ours and trial["steps"] < last and best < trial["validation"]:
            exponent = log(trial["validation"] / best) / log(last / trial["steps"])
            return Improvement(
                "twice the minutes",
                1 - 2**-exponent,
                True,
                f"validation error {trial['validation']:.2%} after the {trial['steps']} steps of "
                f"its trial, {best:.2%} after {last}; the decay slows down later",
            )
    return None


def _samples(evaluation: Evaluation) -> list[Improvement]:
    """The worst samples, if they were like the median of the others."""
    errors = evaluation.headline_errors
    count = int(WORST_SHARE * len(errors))
    if not count or not errors.isfinite().all():
        return []
    order = errors.argsort(descending=True).tolist()
    worst, others = order[:count], errors[order[count:]]
    total, typical = float(errors.sum()), float(others.median())
    names = ", ".join(map(str, worst[:LISTED])) + (" and others" if count > LISTED else "")
    gain = 1 - (float(others.sum()) + count * typical) / total
    return [
        Improvement(
            "samples like the worst ones, or better data for them",
            gain,
            True,
            f"the worst {count} of {len(errors)} test samples ({names}) have "
            f"{float(errors[worst].sum()) / total:.0%} of the sum of the errors, and "
            f"{float(errors[worst].mean()):.2%} on average; the median of the others is "
            f"{typical:.2%}",
        )
    ]


def _fields(figures: Mapping[str, Any]) -> list[Improvement]:
    """The worst output, if its error were like the median of the others."""
    errors = {name: of["relative_l2"] for name, of in figures["fields"].items()}
    if len(errors) < 2 or not all(errors.values()):
        return []
    worst = max(errors, key=lambda name: errors[name])
    others = [error for name, error in errors.items() if name != worst]
    gain = 1 - (sum(others) + median(others)) / sum(errors.values())
    return [
        Improvement(
            f"the field {worst}: more weight or inputs that determine it",
            gain,
            True,
            f"{worst} has {errors[worst]:.2%}, the others {_range(others)}; the gain is that of "
            f"the mean over the fields",
        )
    ]


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2%}" if low == high else f"{low:.2%} to {high:.2%}"


def _models(run: Run) -> list[Improvement]:
    remark = other_models(run)
    return [Improvement("another model", None, False, remark)] if remark else []


def expected_error(trial: Mapping[str, Any]) -> float:
    """What candidates are compared by; in older runs the error at the end of their trials."""
    found = trial.get("expected") or trial["validation"]
    return inf if found is None else float(found)


def other_models(run: Run) -> str:
    """Whether another model may be better; empty for benchmarks, which have a comparison."""
    name = run.config.model_name
    errors = {trial["model"]: expected_error(trial) for trial in run.trials}
    if not errors:
        rivals = [model_class(rival).title for rival in candidates(run.problem) if rival != name]
        is_user_data = run.config.data.file is not None
        advice = (
            f"No other model was tried on these data. {' or '.join(rivals)} might be better: "
            f"`cato train --model auto` compares them."
        )
        return advice if is_user_data else ""
    close = [
        f"{model_class(rival).title} ({error:.2%}, {errors[name]:.2%} for it)"
        for rival, error in errors.items()
        if rival != name and error <= CLOSE * errors[name]
    ]
    if not close:
        return f"It was ahead by more than {CLOSE - 1:.0%}."
    return (
        f"{' and '.join(close)} came within {CLOSE - 1:.0%} of it. In a whole training the order "
        f"may differ, so another model could be better: train it too and compare."
    )
