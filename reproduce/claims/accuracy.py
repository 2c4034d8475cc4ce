"""CATO has the lowest error on every benchmark (paper, Table 1 and abstract).

Claims with a number of the paper are judged by its metric, the error of all outputs jointly. Where
a benchmark has another headline, the details have that too. Mean ranks, which the paper does not
quantify, are those of the headlines, as in the tables.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import mean
from typing import NamedTuple

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.inference.evaluate import ALL_OUTPUTS, has_learnt
from cato.models.registry import model_class
from reproduce.experiment import OURS
from reproduce.paper import PAPER, PaperNumbers
from reproduce.results import Row, by_benchmark, by_headline, percent, setting_of, title_of
from reproduce.studies.compare import family, mean_ranks
from reproduce.verdicts import (
    CONTRADICTORY,
    NOT_RUN,
    NOT_SHOWN,
    ONE_SEED,
    SHOWN,
    TOO_SHORT,
    Claim,
    check_gain,
    check_lowest_rank,
    check_mean_reduction,
    check_observed,
    combine,
    compare_to_rivals,
    counted,
    is_positive,
    mean_interval,
)

PAPER_ROUNDING = 0.00005
"""Half of the last digit in Table 1."""
PAPER_REDUCTION = 0.2676
"""Mean reduction of the error relative to the strongest rivals."""


class Reduction(NamedTuple):
    """Reduction of the error relative to the best rival on one benchmark, and the verdict."""

    share: float
    verdict: str


def paper_numbers() -> dict[str, PaperNumbers]:
    """The paper's numbers by benchmark."""
    return {name: PAPER[name] for name in BENCHMARKS if name in PAPER}


def accuracy(results: Row) -> list[Claim]:
    """CATO has the lowest error on every benchmark, by 27 % in the mean."""
    setting, protocol = setting_of(results), protocol_of(results)
    found: list[Claim] = []
    reductions: dict[str, Reduction] = {}
    for benchmark, number in paper_numbers().items():
        rows = [row for row in results["rows"] if row["benchmark"] == benchmark]
        ours = next((row for row in rows if row["model"] in OURS), None)
        rivals = sorted(
            (row for row in rows if row["model"] not in OURS), key=lambda row: row["relative_l2"]
        )
        text = f"lowest error on {get_benchmark(benchmark).title}, {protocol}"
        rival = f"{model_class(number.rival).title} {number.rival_error:.2%}"
        paper = f"{number.error:.2%}; {rival}"
        if ours is None or not rivals:
            found.append(Claim(text, paper, "", setting, NOT_RUN))
            continue
        best, verdict = rivals[0], compare_to_rivals(ours, rivals)
        reductions[benchmark] = Reduction(1 - ours["relative_l2"] / best["relative_l2"], verdict)
        rank = 1 + sum(row["relative_l2"] < ours["relative_l2"] for row in rivals)
        num_learnt = sum(map(has_learnt, rivals))
        details = (
            f"rank {rank} of {len(rows)}; {num_learnt} of {len(rivals)} rivals clearly beat the "
            f"training mean, {ours['mean_predictor']:.1%}{_headline(rows)}"
        )
        words = f"{_error(ours)}; best rival {_error(best)}"
        found.append(Claim(text, paper, words, setting, verdict, details))
    if reductions:
        rows = results["rows"]
        found += [
            _mean_reduction(reductions, rows, protocol, setting),
            *_each_reduction(reductions, protocol, setting),
            _pronounced(reductions, protocol, setting),
            _balance(rows, protocol, setting),
            *(_against(rival, rows, protocol, setting) for rival in ("saot", "transolver")),
        ]
    return found


def table_1_claims(results: Row) -> list[Claim]:
    """The errors of the paper's CATO, from trainings as long as the paper's."""
    num_seeds, published = len(results["settings"]["seeds"]), paper_numbers()
    return [
        Claim(
            f"{get_benchmark(row['benchmark']).title}: the error of Table 1",
            f"{error:.2%}",
            _error(row),
            setting_of(results),
            check_observed(
                row["relative_l2"] - (row["spread"] or 0) < error + PAPER_ROUNDING, num_seeds
            ),
        )
        for row in results["rows"]
        if row["model"] in OURS and row["benchmark"] in published
        for error in [published[row["benchmark"]].error]
    ]


def gallery_claims(results: Row) -> list[Claim]:
    """CATO's predictions are closer to the truth than those of SAOT and Transolver."""
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
                verdicts.append(check_observed(share > 0.5, num_seeds=1) if both else TOO_SHORT)
    if not shares:  # CATO alone
        return []
    return [
        Claim(
            "predictions closer to the truth than those of Transolver and SAOT",
            "lighter error maps; not quantified",
            f"lower error on {min(shares):.0%} to {max(shares):.0%} of the test samples",
            f"`{results['rows'][0]['scale']}`, the runs of the pictures, one seed",
            combine(verdicts),
            f"{len(results['rows'])} benchmarks; {verdicts.count(TOO_SHORT)} of {len(verdicts)} "
            "pairs trained too short to tell",
        )
    ]


def protocol_of(results: Row) -> str:
    """The budget that all models of a comparison share."""
    return "equal epochs" if results["settings"]["minutes"] is None else "equal time"


def _mean_reduction(
    reductions: Mapping[str, Reduction], rows: list[Row], protocol: str, setting: str
) -> Claim:
    """Reduction of the error relative to the strongest rival of each benchmark that counts."""
    verdicts = [reduction.verdict for reduction in reductions.values()]
    wins, number = sum(map(is_positive, verdicts)), len(paper_numbers())
    able = {row["benchmark"] for row in counted(rows, OURS)}
    shares = [reduction.share for name, reduction in reductions.items() if name in able]
    words, details = f"clearly first on {wins}", f"{len(reductions) - len(able)} not counted"
    if shares:
        low, high = mean_interval(shares)
        words = f"{mean(shares):.1%} over {len(shares)} benchmarks, {words}"
        details = f"{low:.1%} to {high:.1%} over the benchmarks; {details}"
    return Claim(
        f"mean error reduction over the strongest rivals, {protocol}",
        f"{PAPER_REDUCTION:.2%}, first on {number} of {number}",
        words,
        setting,
        check_mean_reduction(shares, verdicts, PAPER_REDUCTION, number),
        f"{details}, because CATO, the best rival or most rivals have not left the training mean",
    )


def _each_reduction(
    reductions: Mapping[str, Reduction], protocol: str, setting: str
) -> Iterator[Claim]:
    """The paper's reduction on each benchmark."""
    for benchmark, number in paper_numbers().items():
        if benchmark in reductions:
            share, verdict = reductions[benchmark]
            claimed = 1 - number.error / number.rival_error
            yield Claim(
                f"error reduction on {get_benchmark(benchmark).title}, {protocol}",
                f"{claimed:.2%}",
                f"{share:.1%}",
                setting,
                check_gain(share, claimed, verdict) if is_positive(verdict) else verdict,
            )


def paper_contradictions(paper: Mapping[str, PaperNumbers] = PAPER) -> list[Claim]:
    """Numbers of the paper that disagree with each other."""
    found = []
    for benchmark, number in paper.items():
        in_text = number.text_rival_error
        if in_text is None or in_text == number.rival_error:
            continue
        reductions = [1 - number.error / error for error in (in_text, number.rival_error)]
        found.append(
            Claim(
                f"{get_benchmark(benchmark).title}: the best rival's error",
                f"{in_text:.4f} in the text, {number.rival_error:.4f} in Table 1",
                f"reductions of {reductions[0]:.2%} and {reductions[1]:.2%} to {number.error:.4f}",
                "the paper",
                CONTRADICTORY,
                "the table's is used",
            )
        )
    return found


def _pronounced(reductions: Mapping[str, Reduction], protocol: str, setting: str) -> Claim:
    """The benchmarks with the paper's largest gains."""
    paper, ours, verdicts = [], [], []
    for benchmark, number in paper_numbers().items():
        if not number.is_highlighted:
            continue
        title, claimed = get_benchmark(benchmark).title, 1 - number.error / number.rival_error
        paper.append(f"{claimed:.2%} on {title}")
        if benchmark not in reductions:
            verdicts.append(NOT_RUN)
            continue
        share, verdict = reductions[benchmark]
        ours.append(f"{share:.1%} on {title}")
        verdicts.append(check_gain(share, claimed, verdict) if is_positive(verdict) else verdict)
    return Claim(
        f"particularly large reductions on fluid and nonlinear material benchmarks, {protocol}",
        ", ".join(paper),
        ", ".join(ours),
        setting,
        combine(verdicts),
    )


def _balance(rows: list[Row], protocol: str, setting: str) -> Claim:
    """Whether CATO has the lowest mean rank, beyond the spread over seeds and benchmarks."""
    rows = counted(by_headline(rows), OURS)
    text = f"the most balanced accuracy across benchmarks, {protocol}"
    if not rows:
        return Claim(text, "not quantified", "no benchmark counts", setting, TOO_SHORT)
    ranks = mean_ranks(rows)
    ours = ranks.pop("cato")
    best = min(ranks, key=lambda name: ranks[name])
    verdict, share = check_lowest_rank([row | {"family": family(row)} for row in rows], "cato")
    return Claim(
        text,
        "not quantified",
        f"mean rank {ours:.1f}; best rival {model_class(best).title} {ranks[best]:.1f}",
        setting,
        verdict,
        f"CATO has the lowest mean rank in {share:.0%} of the bootstrap draws over the "
        f"{len(by_benchmark(rows))} benchmarks that count and their seeds; 95% are required",
    )


def _against(rival: str, rows: list[Row], protocol: str, setting: str) -> Claim:
    """CATO against one of the two transformers that the paper compares it with throughout."""
    verdicts = [
        compare_to_rivals(ours, [theirs])
        for ours in rows
        for theirs in rows
        if ours["model"] in OURS
        and theirs["model"] == rival
        and ours["benchmark"] == theirs["benchmark"]
        and ours["benchmark"] in paper_numbers()
    ]
    words = {SHOWN: "lower", ONE_SEED: "lower", NOT_SHOWN: "not lower"}
    counts = Counter(words.get(verdict, verdict) for verdict in verdicts).items()
    number = len(paper_numbers())
    missing = [NOT_RUN] * (number - len(verdicts))
    return Claim(
        f"lower error than {model_class(rival).title}, {protocol}",
        f"on {number} of {number}",
        ", ".join(f"{word} on {number}" for word, number in counts),
        setting,
        combine([*verdicts, *missing]),
    )


def _headline(rows: list[Row]) -> str:
    """The same comparison in the headline of the benchmark, if it was measured."""
    ranked = sorted(by_headline(rows), key=lambda row: row["relative_l2"])
    field = ranked[0]["field"]
    if field in ("", ALL_OUTPUTS):
        return ""
    ours = next(row for row in ranked if row["model"] in OURS)
    rival = next(row for row in ranked if row["model"] not in OURS)
    return f"; {field}: {_error(ours)}, best rival {_error(rival)}"


def _error(row: Row) -> str:
    return f"{title_of(row)} {percent(row['relative_l2'], row['spread'])}"
