"""efficiency.md: what `python -m reproduce efficiency` found, for readers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cato.benchmarks import get_benchmark
from reproduce.compare import OURS
from reproduce.outcomes import by_benchmark
from reproduce.pages import save_page
from reproduce.profiling import LARGEST_FORWARD, LONGEST_FORWARD, MATMUL
from reproduce.references import title_of

Row = Mapping[str, Any]

COUNTED = (
    "GFLOP are counted with PyTorch's counter on the plain formulas, a multiply-add as 2: products "
    "of matrices (complex ones as four real ones), convolutions, attention, Fourier transforms "
    "(5 n log₂ n, of real values half of that) and triangular factorisations. Operations on single "
    "elements (activations, norms, softmax, rotations) are not counted."
)


def write_page(results: Mapping[str, Any], out: Path) -> None:
    """efficiency.md, from the results alone."""
    settings, machine = results["settings"], results["environment"]
    lines = [
        f"One thread of {machine['processor']}, float32, PyTorch {machine['torch']}; the paper's "
        "times are those of a GPU, and there was none here.",
        "",
        COUNTED,
    ]
    if results["rows"]:
        lines += ["", "## A training step", "", _how_timed(settings)]
    for benchmark, rows in by_benchmark(results["rows"]).items():
        title = get_benchmark(benchmark).title
        lines += ["", f"### {title}", "", *_cost_table(rows)]
        lines += _plain(rows, by_benchmark(results["plain"]).get(benchmark, []))
        lines += ["", f"![{title}: epoch against operations](bubble-{benchmark}.png)"]
    lines += ["", "## Parameters", "", *_parameter_table(results["parameters"], settings)]
    if results["claims"]:
        lines += ["", "## The paper's claims", "", *_claim_table(results["claims"])]
    if results["growth"]:
        lines += ["", "## Growth with the mesh", "", *_growth(results["growth"], settings)]
    if results["failed"]:
        lines += ["", "## Not measured", ""]
        lines += [f"- {failure['what']}: {failure['why']}" for failure in results["failed"]]
    save_page(out, "efficiency", "Efficiency", lines)


def _how_timed(settings: Row) -> str:
    return (
        f"Scale `{settings['scale']}`: width and depth of each model by its recipe, which are the "
        f"published ones at `paper`; batch {settings['batch']} for all. A step is forward, loss, "
        f"backward and update, timed between two matmuls of {MATMUL} × {MATMUL} matrices, median "
        f"of {settings['repeats']}; an epoch is as many steps as all samples of training and "
        "validation need (1000 samples at `paper`, as in the paper), in matmuls times the median "
        "time of a matmul. Memory is what a step adds at its peak. Sorted by the time of an epoch."
    )


def _cost_table(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| model | parameters | forward, GFLOP/sample | forward and backward, GFLOP/sample "
        "| epoch, min | step, matmuls | memory of a step, GiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row["epoch_seconds"]):
        lines.append(
            f"| {title_of(row['model'])} | {row['parameters']:,} | {row['gflop_forward']:.3g} "
            f"| {row['gflop_step']:.3g} | {row['epoch_seconds'] / 60:.3g} "
            f"| {row['step_in_matmuls']:.3g} | {row['memory_gib']:.2f} |"
        )
    return lines


def _plain(rows: Sequence[Row], plain: Sequence[Row]) -> list[str]:
    """What CATO owes to loops that are compiled for its attention."""
    ours = [row["step_in_matmuls"] for row in rows if row["model"] == "cato"]
    if not (ours and plain):
        return []
    ratio = plain[0]["step_in_matmuls"] / ours[0]
    return [
        "",
        "CATO's attention runs in loops that were compiled for it, all other models in PyTorch's "
        f"operations. With those a step of CATO takes {plain[0]['step_in_matmuls']:.3g} matmuls, "
        f"{ratio:.2f} times as long.",
    ]


def _parameter_table(rows: Sequence[dict[str, Any]], settings: Row) -> list[str]:
    """Every model on every benchmark that it can do."""
    groups = by_benchmark(rows)
    sizes = {
        ("cato" if row["model"] in OURS else row["model"], row["benchmark"]): row["parameters"]
        for row in rows
    }
    lines = [
        f"By the recipes of scale `{settings['scale']}`, in millions; CATO on Elasticity is "
        "CATO-PC.",
        "",
        "| model | " + " | ".join(get_benchmark(name).title for name in groups) + " |",
        "|---" * (1 + len(groups)) + "|",
    ]
    for model in dict.fromkeys(model for model, _ in sizes):
        cells = [
            f"{sizes[model, name] / 1e6:.2f}" if (model, name) in sizes else "/" for name in groups
        ]
        lines.append(f"| {title_of(model)} | " + " | ".join(cells) + " |")
    return lines


def _claim_table(claims: Sequence[Row]) -> list[str]:
    lines = ["| the paper | measured here | |", "|---|---|---|"]
    for claim in claims:
        lines.append(f"| {claim['claim']} | {claim['measured']} | **{claim['verdict']}** |")
    return lines


def _growth(growth: Sequence[Row], settings: Row) -> list[str]:
    """The exponents, and what they say of the paper's O(HW(H + W))."""
    sizes = settings["sizes"]
    lines = [
        f"Forward of one sample on square meshes of N = n × n nodes, n from {sizes[0]} to "
        f"{sizes[-1]}, scale `{settings['growth_scale']}`. The exponents p of cost ~ Nᵖ are fitted "
        "to the four largest meshes of each column, that of time to times in matmuls of the same "
        "moment. Operations are counted at all sizes; a size is "
        f"run where the one before lets expect less than {LONGEST_FORWARD:g} s and "
        f"{LARGEST_FORWARD:g} GiB.",
        "",
        f"| model | p of operations | p of time | GFLOP at {sizes[-1]}² | largest mesh run "
        "| s there | GiB there |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(growth, key=lambda row: row["rows"][-1]["gflop"]):
        run = [size for size in row["rows"] if "seconds" in size][-1]
        lines.append(
            f"| {title_of(row['model'])} | {_number(row['flop_exponent'])} "
            f"| {_number(row['time_exponent'])} | {row['rows'][-1]['gflop']:.3g} "
            f"| {run['size']}² | {run['seconds']:.3g} | {run['memory_gib']:.2f} |"
        )
    return [*lines, "", *_theory(growth), "", "![Cost of a forward against nodes](growth.png)"]


def _theory(growth: Sequence[Row]) -> list[str]:
    """Measured exponents beside those of the theory, for square meshes."""
    rows = {row["model"]: row for row in growth}
    expected = {
        "axial_attention": ("O(HW(H + W)) is p = 1.5 for CATO's attention", 1.5, 1.5),
        "cato": ("with everything else of it linear, p is between 1 and 1.5 for CATO", 1.0, 1.5),
        "full_attention": ("full attention approaches p = 2 from below", 1.5, 2.0),
    }
    lines = []
    for name, (theory, low, high) in expected.items():
        if name in rows and rows[name]["flop_exponent"] is not None:
            counted = rows[name]["flop_exponent"]
            agrees = low - 0.005 <= counted <= high + 0.005
            lines.append(
                f"- {theory}: operations {counted:.2f}, which "
                f"{'agrees' if agrees else '**does not agree**'}; "
                f"time {_number(rows[name]['time_exponent'])}."
            )
    if {"cato", "full_attention"} <= set(rows):
        full, ours = rows["full_attention"]["rows"][-1], rows["cato"]["rows"][-1]
        lines.append(
            f"- At {ours['size']} × {ours['size']} nodes full attention needs "
            f"{full['gflop'] / ours['gflop']:.0f} times the operations of CATO."
        )
    return lines


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
