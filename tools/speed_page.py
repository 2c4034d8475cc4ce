"""docs/speed.md: everything that was measured about speed, from results files alone."""

from collections.abc import Sequence
from typing import Any

from cato.benchmarks import get_benchmark
from cato.files import read_json
from cato.models.registry import model_class
from tools.pages import Pages, render, table
from tools.results import ROOT, Row, has_results, machine, read_results, results_name

PAGE = ROOT / "docs" / "speed.md"
EFFICIENCY = ROOT / "docs" / "studies" / "efficiency" / "efficiency.json"


def pages() -> Pages:
    """The page."""
    speed, recipes = read_results("speed"), read_results("recipes")["rows"]
    cato, plain = speed["rows"], speed["plain"][0]
    remat = speed.get("remat", [])
    gpu = {
        name: read_results(results_name(name, "cuda"))
        for name in ("speed", "recipes")
        if has_results(results_name(name, "cuda"))
    }
    served, solving = read_results("serve")["rows"], read_results("solvers")
    study = read_json(EFFICIENCY, "results of the efficiency study")
    models, several = model_tables(study), [row for row in served if row["clients"] > 1]
    limit_minutes = recipes[0]["settings"]["limit_minutes"]
    text = render(
        "speed.md",
        machine=machine,
        verdict=verdict,
        loops=" and ".join(f"{m['loops']:.2f} times as long on {m['title']}" for m in models),
        cato=cato,
        s=cato[0]["settings"],
        cato_table=cato_table(cato),
        targets_table=targets_table(cato, plain),
        plain=plain,
        remat=remat,
        remat_table=remat_table(remat) if remat else "",
        gpu=gpu,
        cato_table_of=cato_table,
        remat_table_of=remat_table,
        recipes_table_of=recipes_table,
        study=study,
        models=models,
        recipes=recipes,
        recipes_table=recipes_table(recipes),
        recipes_reached=all(row["minutes"] <= limit_minutes for row in recipes),
        limit_minutes=limit_minutes,
        solver=solving["rows"][0]["settings"],
        solvers=solving["rows"],
        solvers_table=solvers_table(solving["rows"]),
        generation_table=generation_table(solving["rows"]),
        workers=solving["workers"][0],
        served=served,
        load=served[0]["settings"],
        serve_table=serve_table(served),
        faster=sum(row["gain"][0] > 1 for row in several),
        num_several=len(several),
    )
    return {PAGE: text}


def verdict(reached: bool) -> str:
    """Whether a target is reached, in words."""
    return "reached" if reached else "not reached"


def targets_table(rows: Sequence[Row], plain: Row) -> str:
    """Every target, what was measured, and whether that is enough."""
    words = {
        "forward_share": ("forward, share of matmul", "{:.0%}"),
        "step_share": ("training step, share of matmul", "{:.0%}"),
        "bf16_gain": ("step in float32 / step in bf16", "{:.2f}"),
    }
    cells = [
        (
            f"{row['size']} × {row['size']}",
            words[name][0],
            "at least " + words[name][1].format(target),
            words[name][1].format(row[name]),
            verdict(row[name] >= target),
        )
        for row in rows
        for name, target in row["settings"]["targets"].items()
    ]
    limit, ratio = plain["settings"]["target"], plain["ratio"]
    steps = "step without compiled loops / step of Transolver"
    verdict_plain = verdict(ratio <= limit)
    cells.append(("85 × 85", steps, f"at most {limit:.2f}", f"{ratio:.2f}", verdict_plain))
    return table(("mesh", "figure", "target", "measured", "verdict"), cells)


def cato_table(rows: Sequence[Row]) -> str:
    """CATO by mesh."""
    header = (
        "mesh",
        "GFLOP/sample",
        "forward, ms/sample",
        "share of matmul",
        "training step, ms/sample",
        "share of matmul",
        "step in bf16, ms/sample",
        "gain",
        "memory of a step, GiB",
    )
    cells = [
        (
            f"{row['size']} × {row['size']}",
            f"{row['gflop_per_sample']:.2f}",
            f"{1000 * row['forward_seconds'] / row['settings']['batch']:.0f}",
            f"{row['forward_share']:.0%}",
            f"{1000 * row['step_seconds'] / row['settings']['batch']:.0f}",
            f"{row['step_share']:.0%}",
            f"{1000 * row['bf16_step_seconds'] / row['settings']['batch']:.0f}",
            f"{row['bf16_gain']:.2f}",
            f"{row['step_memory_gib']:.2f}",
        )
        for row in rows
    ]
    return table(header, cells)


def remat_table(rows: Sequence[Row]) -> str:
    """A step that recomputes its blocks, in units of one that does not."""
    header = ("figure", "without", "with `--train.remat`", "share", "target", "verdict")
    row = rows[0]
    targets = row["settings"]["targets"]

    def line(words: str, key: str, one: Row, share: float, target: float | None) -> tuple[str, ...]:
        values = (f"{one[f'{name}_{key}']:.2f}" for name in ("plain", "remat"))
        wanted = "" if target is None else f"at most {target:.0%}"
        return words, *values, f"{share:.0%}", wanted, verdict(share <= target) if target else ""

    memory, time = row["memory_share"], row["time_ratio"]
    resident = "resident memory of the process, GiB"
    tuned = [(f"{resident}, with `MALLOC_MMAP_THRESHOLD_`", one) for one in rows[1:]]
    cells = [
        line("tensors at the peak, GiB", "memory_gib", row, memory, targets["memory_share"]),
        line("seconds", "seconds", row, time, targets["time_ratio"]),
        line(resident, "resident_gib", row, row["resident_share"], None),
        *(line(words, "resident_gib", one, one["resident_share"], None) for words, one in tuned),
    ]
    return table(header, cells)


def model_tables(study: dict[str, Any]) -> list[dict[str, Any]]:
    """Training steps of all models, one table for each benchmark of the efficiency study.

    CATO has two rows: with its compiled loops, and in PyTorch operations like all others.
    """
    tables = []
    header = ("model", "matmuls", "ms per sample", "memory of a step, GiB", "parameters")
    for benchmark in dict.fromkeys(row["benchmark"] for row in study["rows"]):
        rows = [row for row in study["rows"] + study["plain"] if row["benchmark"] == benchmark]
        rows.sort(key=lambda row: row["step_in_matmuls"])
        cells = [
            (
                model_label(row["model"]),
                f"{row['step_in_matmuls']:.1f}",
                f"{1000 * row['step_seconds_per_sample']:.0f}",
                f"{row['memory_gib']:.2f}",
                f"{row['parameters']:,}",
            )
            for row in rows
        ]
        steps = {row["model"]: row["step_in_matmuls"] for row in rows}
        tables.append(
            {
                "title": get_benchmark(benchmark).title,
                "table": table(header, cells),
                "loops": steps["plain_cato"] / steps["cato"],
                "transolver": steps["transolver"] / steps["cato"],
                "transolver_plain": steps["transolver"] / steps["plain_cato"],
            }
        )
    return tables


def model_label(name: str) -> str:
    """Name of a model in a table of times; the two rows of CATO say how it was run."""
    labels = {"cato": "**CATO, compiled loops**", "plain_cato": "**CATO, PyTorch operations**"}
    return labels.get(name) or model_class(name).title


def recipes_table(rows: Sequence[Row]) -> str:
    """Minutes of the `small` recipes."""
    cells = [
        (
            link(row["benchmark"]),
            row["model"],
            str(row["epochs"]),
            str(row["steps"]),
            f"{1000 * row['seconds_per_step']:.0f}",
            f"{row['minutes']:.1f}",
        )
        for row in rows
    ]
    return table(("benchmark", "model", "epochs", "steps", "ms per step", "minutes"), cells)


def _target(value: float | None, digits: str) -> str:
    return "none" if value is None else f"{value:{digits}}"


def solvers_table(rows: Sequence[Row]) -> str:
    """Seconds per sample, and whether they are few enough."""
    cells = [
        (
            link(row["benchmark"]),
            f"{row['seconds']:.2f}",
            _target(row["target_seconds"], "g"),
            f"{row['ratio']:.2f}",
            _target(row["target_ratio"], ".2f"),
            verdict(row["reached"]) if row["target_seconds"] else "",
        )
        for row in rows
    ]
    return table(("benchmark", "s/sample", "target, s", "ratio", "target", "verdict"), cells)


def generation_table(rows: Sequence[Row]) -> str:
    """Minutes to generate every scale."""
    titles = [get_benchmark(row["benchmark"]).title for row in rows]
    cells = []
    for scale, limit in rows[0]["settings"]["limit_minutes"].items():
        minutes = [row["minutes"][scale] for row in rows]
        cells.append([scale, *(f"{m:.2f}" for m in minutes), f"{sum(minutes):.1f}", str(limit)])
    return table(["scale", *titles, "all", "limit"], cells)


def serve_table(rows: Sequence[Row]) -> str:
    """Requests per second and latency."""
    header = (
        *("model", "format", "clients", "server", "requests/s"),
        *("p50, ms", "p95, ms", "p99, ms", "gain by batching (range)"),
    )
    cells = []
    for row in rows:
        least, middle, most = row["gain"]
        for server, rate in row["requests_per_second"].items():
            gain = f"{middle:.2f} ({least:.2f} to {most:.2f})" if server == "batched" else ""
            times = (f"{value:.0f}" for value in row["milliseconds"][server])
            case = (row["model"], row["format"], str(row["clients"]), server)
            cells.append((*case, f"{rate:.0f}", *times, gain))
    return table(header, cells)


def link(benchmark: str) -> str:
    """Link to the card of a benchmark."""
    return f"[{get_benchmark(benchmark).title}](benchmarks/{benchmark}.md)"
