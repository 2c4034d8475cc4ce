"""How error and cost scale (paper, "Scaling & efficiency")."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean

from cato.benchmarks import get_benchmark
from cato.models.registry import MODELS, model_class
from reproduce.experiment import OURS
from reproduce.results import Row, by_benchmark, setting_of
from reproduce.studies.efficiency import claims as sentence_claims
from reproduce.studies.scaling import against_rival, curves, rival_in
from reproduce.verdicts import (
    IN_PART,
    NOT_SHOWN,
    SHOWN,
    Claim,
    check_gain,
    check_observed,
    combine,
    compare_to_rivals,
)

PAPER_FEWER_PARAMETERS, PAPER_SPEED_UP = 0.8198, 3.5
TRANSFORMERS = tuple(
    name for name, entry in MODELS.items() if "attention" in entry.family and name not in OURS
)
"""The transformer-based baselines."""
COMPARABLE = 0.1
"""A model with at most this fraction more parameters is comparable."""


def scaling_claims(results: Row) -> list[Claim]:
    """A lower error than the rival's at every value, and the paper's further claims on Darcy."""
    found = []
    setting, num_seeds = setting_of(results), len(results["settings"]["seeds"])
    for benchmark, rows in by_benchmark(results["rows"]).items():
        title, rival = get_benchmark(benchmark).title, rival_in(rows)
        verdict, where = against_rival(rows)
        axes = dict.fromkeys(row["axis"] for row in rows)
        text = f"lower error than {model_class(rival).title} at all values of {', '.join(axes)}"
        found.append(Claim(f"{title}: {text}", "at all", where, setting, verdict))
        if benchmark == "darcy":
            found += _on_darcy(curves(rows), rival, title, setting, num_seeds)
    return found


def _on_darcy(
    lines: Mapping[tuple[str, str], Sequence[Row]],
    rival: str,
    title: str,
    setting: str,
    num_seeds: int,
) -> Iterator[Claim]:
    """CATO benefits from finer meshes and is stable across depths and widths."""
    if ("cato", "resolution") in lines:
        first, *_, last = lines["cato", "resolution"]
        yield Claim(
            f"{title}: CATO benefits from finer meshes",
            "claimed, not quantified",
            f"{first['relative_l2']:.2%} with {first['value']:g} nodes per side, "
            f"{last['relative_l2']:.2%} with {last['value']:g}",
            setting,
            check_observed(last["relative_l2"] < first["relative_l2"], num_seeds),
        )
        pairs = list(zip(lines["cato", "resolution"], lines[rival, "resolution"], strict=True))
        gains = [
            f"{1 - ours['relative_l2'] / theirs['relative_l2']:.1%} with {ours['value']:g}"
            for ours, theirs in pairs
        ]
        yield Claim(
            f"{title}: CATO keeps its advantage over {model_class(rival).title} on finer meshes",
            '"maintains a clear performance advantage"; not quantified',
            f"error reduction {', '.join(gains)} nodes per side",
            setting,
            combine([compare_to_rivals(ours, [theirs]) for ours, theirs in pairs]),
        )
    axes = [axis for axis in ("depth", "width") if ("cato", axis) in lines]
    ratios = [(_ratio(lines["cato", axis]), _ratio(lines[rival, axis])) for axis in axes]
    if axes:
        yield Claim(
            f"{title}: CATO is stable across depths and widths",
            f"stable; {model_class(rival).title} has higher errors",
            "largest rise of the error when it grows: "
            + "; ".join(
                f"{axis} {ours:.2f}, {model_class(rival).title} {theirs:.2f}"
                for axis, (ours, theirs) in zip(axes, ratios, strict=True)
            ),
            setting,
            combine([check_observed(ours <= theirs, num_seeds) for ours, theirs in ratios]),
        )


def _ratio(line: Sequence[Row]) -> float:
    """The largest rise of the error from a smaller value to a larger one; 1 if it only falls."""
    errors = [row["relative_l2"] for row in sorted(line, key=lambda row: row["value"])]
    return float(max(late / min(errors[: k + 1]) for k, late in enumerate(errors)))


def efficiency_claims(results: Row) -> list[Claim]:
    """Fewer parameters, operations and seconds; cost grows as HW(H + W)."""
    setting = f"`{results['settings']['scale']}` settings, one CPU thread"
    found = [
        Claim(row["claim"], "claimed", row["measured"], setting, row["verdict"])
        for row in sentence_claims(results["rows"])
    ]
    found += _parameter_claims(results["parameters"], f"`{results['settings']['scale']}` settings")
    for text, rows in (
        ("training faster than prior methods", results["rows"]),
        (
            "training faster than prior methods, without compiled loops for CATO",
            _without_loops(results),
        ),
    ):
        found += _faster(text, rows, "step_in_matmuls", setting)
    return [*found, *_growth_claims(results)]


def _without_loops(results: Row) -> list[Row]:
    """The rows with CATO in PyTorch operations, like the other models."""
    others = [row for row in results["rows"] if row["model"] != "cato"]
    return [*others, *(row | {"model": "cato"} for row in results["plain"])]


def _parameter_claims(rows: Sequence[Row], setting: str) -> list[Claim]:
    """Fewer parameters than two rivals, and not more than any transformer."""
    ours = {row["benchmark"]: row["parameters"] for row in rows if row["model"] in OURS}
    shares = {
        (row["model"], row["benchmark"]): 1 - ours[row["benchmark"]] / row["parameters"]
        for row in rows
        if row["model"] in TRANSFORMERS
    }
    means = {
        rival: mean(share for (model, _), share in shares.items() if model == rival)
        for rival in ("saot", "transolver")
    }
    more = {pair: share for pair, share in shares.items() if share < -COMPARABLE}
    named = [f"{model_class(m).title} on {get_benchmark(b).title}" for m, b in more]
    return [
        Claim(
            "fewer parameters than prior methods",
            f"{PAPER_FEWER_PARAMETERS:.2%} fewer",
            ", ".join(
                f"{share:.1%} fewer than {model_class(m).title}" for m, share in means.items()
            )
            + f", means over {len(ours)} benchmarks",
            setting,
            check_gain(mean(means.values()), PAPER_FEWER_PARAMETERS),
        ),
        Claim(
            "fewer or comparable parameters than transformer-based baselines",
            "claimed",
            f"at most {COMPARABLE:.0%} more than {len(shares) - len(more)} of {len(shares)}",
            setting,
            combine([NOT_SHOWN if pair in more else SHOWN for pair in shares]),
            f"more than {', '.join(named)}" if named else "",
        ),
    ]


def gpu_claims(results: Row) -> list[Claim]:
    """The time of an epoch, if a comparison was trained on a GPU."""
    gpu = results["rows"][0]["provenance"]["hardware"].get("gpu")
    if not gpu:
        return []
    rows = [row | {"per_epoch": row["minutes"] / row["epochs"]} for row in results["rows"]]
    setting = f"{setting_of(results)}, {gpu}"
    return list(_faster("epochs faster than those of prior methods", rows, "per_epoch", setting))


def _faster(text: str, rows: Sequence[Row], key: str, setting: str) -> Iterator[Claim]:
    """Faster than all other models, and as much faster than Transolver or SAOT as the paper says.

    In part, if it is faster than most of them: one slow rival does not make it fast.
    """
    figures = {(row["benchmark"], row["model"]): row[key] for row in rows}
    ratios = {
        (model, benchmark): theirs / figures[benchmark, "cato"]
        for (benchmark, model), theirs in figures.items()
        if model not in OURS and (benchmark, "cato") in figures
    }
    shown = {pair: ratio for pair, ratio in ratios.items() if pair[0] in ("transolver", "saot")}
    if not shown:
        return
    model, benchmark = max(shown, key=lambda pair: shown[pair])
    largest, slower = shown[model, benchmark], sum(ratio > 1 for ratio in ratios.values())
    if largest >= PAPER_SPEED_UP and slower == len(ratios):
        verdict = SHOWN
    else:
        verdict = IN_PART if 2 * slower > len(ratios) else NOT_SHOWN
    where = f"{model_class(model).title} on {get_benchmark(benchmark).title}"
    yield Claim(
        text,
        f"up to {PAPER_SPEED_UP} times, on a GPU",
        f"faster than {slower} of {len(ratios)}; up to {largest:.1f} times ({where})",
        setting,
        verdict,
        "every other model on every benchmark counts once",
    )


def _growth_claims(results: Row) -> list[Claim]:
    """Growth of the operations of a forward with the number of nodes."""
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
                "claimed, not quantified",
                f"{full / ours:.0f} times fewer operations on the largest mesh",
                setting,
                SHOWN if ours < full else NOT_SHOWN,
            )
        )
    return found
