"""How error and cost scale (paper, "Scaling & efficiency")."""

from collections.abc import Sequence
from typing import Any

from cato.data.benchmarks import get_benchmark
from cato.models.registry import model_entry
from cato.studies.outcomes import setting_of
from cato.studies.scaling import RIVALS, against_rival
from cato.studies.verdicts import NOT_SHOWN, SHOWN, Claim, at_least, of_parts, seen

PAPER_FEWER_PARAMETERS, PAPER_SPEED_UP = 0.8198, 3.5

Row = dict[str, Any]


def scaling_claims(results: Row) -> list[Claim]:
    """A lower error than the rival's at every value, which falls with samples and finer meshes."""
    found = []
    setting, num_seeds = setting_of(results), len(results["settings"]["seeds"])
    for benchmark in dict.fromkeys(row["benchmark"] for row in results["rows"]):
        title, rival = get_benchmark(benchmark).title, model_entry(RIVALS[benchmark]).title
        here = [row for row in results["rows"] if row["benchmark"] == benchmark]
        verdict, where = against_rival(here)
        axes = dict.fromkeys(row["axis"] for row in here)
        found.append(
            Claim(
                f"{title}: lower error than {rival} at all values of {', '.join(axes)}",
                "at all",
                where,
                setting,
                verdict,
            )
        )
        slopes = {
            (line["model"], line["axis"]): line["slope"]
            for line in results["slopes"]
            if line["benchmark"] == benchmark
        }
        ours = {axis: slopes["cato", axis] for axis in ("samples", "resolution") if axis in axes}
        found.append(
            Claim(
                f"{title}: CATO's error falls with {' and '.join(ours)}",
                "falls; no slope",
                ", ".join(
                    f"slope in {axis} {slope:.2f}, {rival} {slopes[RIVALS[benchmark], axis]:.2f}"
                    for axis, slope in ours.items()
                ),
                setting,
                of_parts([seen(slope < 0, num_seeds) for slope in ours.values()]),
            )
        )
    return found


def efficiency_claims(results: Row) -> list[Claim]:
    """Fewer parameters, operations and seconds; cost grows as HW(H + W)."""
    setting = f"`{results['settings']['scale']}` settings, one CPU thread"
    found = [
        Claim(row["claim"], "so", row["measured"], setting, SHOWN if row["holds"] else NOT_SHOWN)
        for row in results["claims"]
    ]
    fewer, slower = (
        _largest_ratio(results["rows"], key) for key in ("parameters", "step_in_matmuls")
    )
    if fewer and slower:
        saved = 1 - 1 / fewer[0]
        found += [
            Claim(
                "fewer parameters than prior methods",
                f"{PAPER_FEWER_PARAMETERS:.1%} fewer",
                f"up to {saved:.1%} fewer ({fewer[1]})",
                setting,
                at_least(saved, PAPER_FEWER_PARAMETERS),
            ),
            _faster("training faster than prior methods", slower, setting),
        ]
    return [*found, *_growth_claims(results)]


def gpu_claims(results: Row) -> list[Claim]:
    """The time of an epoch, if a comparison was trained on a GPU."""
    if not results["environment"].get("gpu"):
        return []
    rows = [row | {"per_epoch": row["minutes"] / row["epochs"]} for row in results["rows"]]
    slower = _largest_ratio(rows, "per_epoch")
    setting = f"{setting_of(results)}, {results['environment']['gpu']}"
    return [_faster("epochs faster than those of prior methods", slower, setting)] if slower else []


def _faster(text: str, slower: tuple[float, str], setting: str) -> Claim:
    ratio, where = slower
    return Claim(
        text,
        f"up to {PAPER_SPEED_UP} times, on a GPU",
        f"up to {ratio:.1f} times ({where})",
        setting,
        at_least(ratio - 1, PAPER_SPEED_UP - 1),
    )


def _largest_ratio(rows: Sequence[Row], key: str) -> tuple[float, str] | None:
    """The largest ratio of Transolver's or SAOT's figure to CATO's, and where it was found."""
    figures = {(row["benchmark"], row["model"]): row[key] for row in rows}
    ratios = [
        (theirs / figures[benchmark, "cato"], f"{model_entry(rival).title} on {title}")
        for (benchmark, rival), theirs in figures.items()
        if rival in ("transolver", "saot") and (benchmark, "cato") in figures
        for title in [get_benchmark(benchmark).title]
    ]
    return max(ratios, default=None)


def _growth_claims(results: Row) -> list[Claim]:
    """How operations of a forward grow with the number of nodes."""
    growth = {row["model"]: row for row in results["growth"]}
    setting = (
        f"`{results['settings']['growth_scale']}` settings, up to "
        f"{max(results['settings']['sizes'])} nodes per side"
    )
    found = []
    if growth.get("cato", {}).get("flop_exponent") is not None:
        power = growth["cato"]["flop_exponent"]
        found.append(
            Claim(
                "cost of a forward grows as HW(H + W)",
                "exponent at most 1.5 in the number of nodes",
                f"{power:.2f} in counted operations",
                setting,
                SHOWN if power <= 1.5 else NOT_SHOWN,
            )
        )
    if {"cato", "full_attention"} <= set(growth):
        ours, full = (growth[name]["rows"][-1]["gflop"] for name in ("cato", "full_attention"))
        found.append(
            Claim(
                "cheaper than full attention",
                "avoids its cost; no number",
                f"{full / ours:.0f} times fewer operations on the largest mesh",
                setting,
                SHOWN if ours < full else NOT_SHOWN,
            )
        )
    return found
