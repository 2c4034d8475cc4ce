"""CATO has the lowest error on every benchmark (paper, Table 1 and abstract)."""

import math
from collections import Counter
from collections.abc import Mapping
from statistics import mean
from typing import Any, NamedTuple

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.models.registry import model_entry
from reproduce.compare import OURS, mean_ranks
from reproduce.outcomes import percent, setting_of
from reproduce.verdicts import (
    LEVEL,
    NOT_RUN,
    NOT_SHOWN,
    ONCE,
    SHOWN,
    TOO_SHORT,
    Claim,
    Stated,
    at_least,
    decide,
    has_learnt,
    holds,
    of_parts,
    seen,
)

PAPER = {name: b.paper for name, b in BENCHMARKS.items() if b.paper is not None}
"""Table 1 of the paper: CATO's error and that of its strongest rival."""
PAPER_ROUNDING = 0.00005
"""Half of the last digit in that table."""
PAPER_REDUCTION = 0.2676
"""Of the error, over the strongest rivals, in the mean."""
PRONOUNCED = tuple(name for name, paper in PAPER.items() if paper.is_highlighted)
"""Where the paper's gains are largest."""

Row = dict[str, Any]


class Reduction(NamedTuple):
    """Of the error below that of the best rival, on one benchmark."""

    share: float
    verdict: str


def accuracy(results: Row) -> list[Claim]:
    """CATO has the lowest error on every benchmark, by 27 % in the mean."""
    setting, protocol = setting_of(results), _protocol(results)
    found: list[Claim] = []
    reductions: dict[str, Reduction] = {}
    for benchmark in PAPER:
        rows = [row for row in results["rows"] if row["benchmark"] == benchmark]
        ours = next((row for row in rows if row["model"] in OURS), None)
        rivals = sorted(
            (row for row in rows if row["model"] not in OURS), key=lambda row: row["relative_l2"]
        )
        published = PAPER[benchmark]
        text = f"lowest error on {get_benchmark(benchmark).title}, {protocol}"
        rival = f"{model_entry(published.rival).title} {published.rival_error:.2%}"
        paper = f"{published.error:.2%}; {rival}"
        if ours is None or not rivals:
            found.append(Claim(text, paper, "", setting, NOT_RUN))
            continue
        best, verdict = rivals[0], decide(ours, rivals)
        reductions[benchmark] = Reduction(1 - ours["relative_l2"] / best["relative_l2"], verdict)
        rank = 1 + sum(row["relative_l2"] < ours["relative_l2"] for row in rivals)
        num_learnt = sum(map(has_learnt, rivals))
        words = (
            f"{_error(ours)}; best rival {_error(best)}; rank {rank} of {len(rows)}; "
            f"{num_learnt} of {len(rivals)} rivals clearly beat the training mean, "
            f"{ours['mean_predictor']:.1%}"
        )
        found.append(Claim(text, paper, words, setting, verdict))
    if reductions:
        found += _overall(results["rows"], reductions, setting, protocol)
    return found


def table_1_claims(results: Row) -> list[Claim]:
    """The errors of the paper's CATO, of trainings as long as the paper's."""
    num_seeds = len(results["settings"]["seeds"])
    return [
        Claim(
            f"{get_benchmark(row['benchmark']).title}: the error of Table 1",
            f"{published.error:.2%}",
            _error(row),
            setting_of(results),
            seen(
                row["relative_l2"] - (row["spread"] or 0) < published.error + PAPER_ROUNDING,
                num_seeds,
            ),
        )
        for row in results["rows"]
        if row["model"] in OURS
        for published in [PAPER[row["benchmark"]]]
    ]


def gallery_claims(results: Row) -> list[Claim]:
    """CATO's pictures are closer to the truth than those of SAOT and Transolver."""
    shares, verdicts = [], []
    for row in results["rows"]:
        learnt = {
            name: has_learnt({"relative_l2": error, "mean_predictor": row["mean_predictor"]})
            for name, error in row["mean_errors"].items()
        }
        for rival, share in row["beaten"].items():
            if rival != row["chosen_by"]:
                shares.append(share)
                both = learnt[rival] and learnt[row["chosen_by"]]
                verdicts.append(seen(share > 0.5, num_seeds=1) if both else TOO_SHORT)
    if not shares:  # CATO's pictures alone
        return []
    return [
        Claim(
            "pictures closer to the truth than those of Transolver and SAOT",
            "closer, with lighter error maps; no number",
            f"lower error on {min(shares):.0%} to {max(shares):.0%} of the test samples of "
            f"{len(results['rows'])} benchmarks; {verdicts.count(TOO_SHORT)} of {len(verdicts)} "
            "pairs too early to tell",
            f"`{results['rows'][0]['scale']}`, the runs of the pictures, one seed",
            of_parts(verdicts),
        )
    ]


def _protocol(results: Row) -> str:
    return "equal epochs" if results["settings"]["minutes"] is None else "equal time"


def _overall(
    rows: list[Row], reductions: Mapping[str, Reduction], setting: str, protocol: str
) -> list[Claim]:
    """What the paper says of all benchmarks together."""
    stated = [
        _mean_reduction(reductions),
        _pronounced(reductions),
        _balance(rows),
        *(_against(rival, rows) for rival in ("saot", "transolver")),
    ]
    return [
        Claim(f"{text}, {protocol}", paper, ours, setting, verdict)
        for text, paper, ours, verdict in stated
    ]


def _mean_reduction(reductions: Mapping[str, Reduction]) -> Stated:
    """By how much CATO's error is below that of the strongest rival, whoever wins."""
    wins = sum(holds(reduction.verdict) for reduction in reductions.values())
    average = mean(reduction.share for reduction in reductions.values())
    everywhere = wins == len(PAPER)
    return (
        "mean error reduction over the strongest rivals",
        f"{PAPER_REDUCTION:.2%}, first on {len(PAPER)} of {len(PAPER)}",
        f"{average:.1%} over {len(reductions)} benchmark(s), clearly first on {wins}",
        at_least(average, PAPER_REDUCTION if everywhere else math.inf),
    )


def _pronounced(reductions: Mapping[str, Reduction]) -> Stated:
    """Where the paper's gains are largest."""
    paper, ours, verdicts = [], [], []
    for benchmark in PRONOUNCED:
        published = PAPER[benchmark]
        title, claimed = (
            get_benchmark(benchmark).title,
            1 - published.error / published.rival_error,
        )
        paper.append(f"{claimed:.2%} on {title}")
        if benchmark not in reductions:
            verdicts.append(NOT_RUN)
            continue
        share, verdict = reductions[benchmark]
        ours.append(f"{share:.1%} on {title}")
        verdicts.append(at_least(share, claimed) if holds(verdict) else verdict)
    return (
        "particularly large reductions on fluid and nonlinear material benchmarks",
        ", ".join(paper),
        ", ".join(ours),
        of_parts(verdicts),
    )


def _balance(rows: list[Row]) -> Stated:
    """Whether CATO has the lowest mean rank."""
    ranks = mean_ranks(rows)
    ours = ranks.pop("cato")
    best = min(ranks, key=lambda name: ranks[name])
    gap = ranks[best] - ours
    return (
        "the most balanced accuracy across benchmarks",
        "no number",
        f"mean rank {ours:.1f}; best rival {model_entry(best).title} {ranks[best]:.1f}",
        SHOWN if gap > 0 else LEVEL if gap == 0 else NOT_SHOWN,
    )


def _against(rival: str, rows: list[Row]) -> Stated:
    """CATO beside one of the two transformers that the paper compares it with throughout."""
    verdicts = [
        decide(ours, [theirs])
        for ours in rows
        for theirs in rows
        if ours["model"] in OURS
        and theirs["model"] == rival
        and ours["benchmark"] == theirs["benchmark"]
    ]
    counts = Counter(map(_in_words, verdicts)).items()
    missing = [NOT_RUN] * (len(PAPER) - len(verdicts))
    return (
        f"lower error than {model_entry(rival).title}",
        f"on {len(PAPER)} of {len(PAPER)}",
        ", ".join(f"{words} on {number}" for words, number in counts),
        of_parts([*verdicts, *missing]),
    )


def _in_words(verdict: str) -> str:
    return {SHOWN: "lower", ONCE: "lower", NOT_SHOWN: "not lower"}.get(verdict, verdict)


def _error(row: Row) -> str:
    return f"{model_entry(row['model']).title} {percent(row['relative_l2'], row['spread'])}"
