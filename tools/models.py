"""Training step and memory of every model at the paper's Darcy and Pipe settings, in one table.

    make bench        # writes tools/results/models.json and docs/models/speed.md

The measurements are those of `python -m reproduce efficiency` (`reproduce.profiling`), taken anew
and left where that study finds them.
"""

from pathlib import Path
from typing import Any

from cato.benchmarks import get_benchmark
from cato.files import write_json
from cato.models.registry import grid_models, model_entry
from cato.progress import progress_bar
from cato.runs.provenance import environment
from reproduce.profiling import BATCH, MATMUL, REPEATS, kept_at, measured

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "tools" / "results" / "models.json", ROOT / "docs/models/speed.md"
RUNS = ROOT / "runs" / "efficiency"
BENCHMARKS = ("darcy", "pipe")
TARGET = 1.5
"""How many times faster than Transolver's a training step of CATO must be."""


def speed_up(rows: list[dict[str, Any]], benchmark: str) -> float:
    """Transolver's step time over that of CATO, both in matmuls."""
    steps = {row["model"]: row["step_in_matmuls"] for row in rows if row["benchmark"] == benchmark}
    return steps["transolver"] / steps["cato"]


def write_page(results: dict[str, Any]) -> None:
    """docs/models/speed.md, from the results alone."""
    lines = [
        "# Speed of the models",
        "",
        "<!-- written by `make bench` from tools/results/models.json; do not edit -->",
        "",
        f"A training step at the published settings, batch {BATCH} for all, float32, one thread of "
        f"{results['environment']['processor']}, PyTorch {results['environment']['torch']}.",
        f"*Matmuls*: the step in units of a matmul of {MATMUL} × {MATMUL} matrices timed just "
        f"before and after it, median of {REPEATS}; the table is sorted by it.",
    ]
    for benchmark in BENCHMARKS:
        rows = [row for row in results["rows"] if row["benchmark"] == benchmark]
        rows.sort(key=lambda row: row["step_in_matmuls"])
        lines += [
            "",
            f"## {get_benchmark(benchmark).title}",
            "",
            "| model | matmuls | ms per sample | memory of a step, GiB | parameters |",
            "|---|---|---|---|---|",
        ]
        for row in rows:
            lines.append(
                f"| {model_entry(row['model']).title} | {row['step_in_matmuls']:.1f} "
                f"| {1000 * row['step_seconds_per_sample']:.0f} | {row['memory_gib']:.2f} "
                f"| {row['parameters']:,} |"
            )
        ratio = speed_up(rows, benchmark)
        verdict = "reached" if ratio >= TARGET else "not reached"
        lines += [
            "",
            f"CATO's step is {ratio:.2f} times as fast as Transolver's; required {TARGET}, "
            f"{verdict}.",
        ]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join([*lines, ""]))


def main() -> None:
    """Measure every model in a process of its own, then write results and page."""
    jobs = [
        {"benchmark": benchmark, "scale": "paper", "model": name, "repeats": REPEATS}
        for benchmark in BENCHMARKS
        for name in grid_models()
    ]
    rows = []
    with progress_bar("models", len(jobs)) as bar:
        for number, job in enumerate(jobs, start=1):
            kept_at("step", RUNS, job).unlink(missing_ok=True)
            row = measured("step", RUNS, job)
            if "failed" in row:
                raise SystemExit(f"{job['model']} on {job['benchmark']}: {row['failed']}")
            rows.append(row)
            bar(number, f"{job['model']} {row['step_in_matmuls']:.1f} matmuls")
    results = {"environment": environment(), "batch": BATCH, "target": TARGET, "rows": rows}
    write_json(RESULTS, results)
    write_page(results)
    print(f"wrote {RESULTS.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
