"""Time from a file in each supported layout to its first report, on this machine.

    make bench-first-report                       # all layouts, about an hour on two cores
    python -m tools.first_report "OpenFOAM"       # some of them, also if they were measured before
    python -m tools.first_report --write          # only write their files, which are kept
    python -m tools.first_report --trial          # two steps of training on few samples

For each command `cato train FILE` of docs/layouts.md, a file in exactly that layout is written (by
the writers of tests/user_data/layouts.py) with 200 samples of a real problem at a realistic size.
Then `cato inspect`, `cato train` with its defaults and `cato report` are timed as a user would run
them. A row is written as soon as it is measured, and kept by the next call. It says which share of
the processors other programs used just before, and the niceness of the measurement.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cato.runs.folder import open_run
from tools import layout_data as data
from tools.pages import Pages, table, with_block, write_pages
from tools.results import ROOT, Row, has_results, machine, read_results, stamped, update_rows
from tools.user_data import EXAMPLES

PAGE = ROOT / "docs" / "layouts.md"
FILES = Path("runs") / "first-report"
LIMIT = 300.0  # Seconds from a file to its report.
SAMPLES = 200
IDLE = 0.2  # Largest share of the processors that others may use while a row is measured.
WATCHED_SECONDS = 3.0
OWN_LAYOUT = "The documented layout"
"""HDF5 with the documented names; its data are those of examples/heat_equation.py."""
TRAIN = re.compile(r"^cato train (\S+?)/?( .*)? --out", re.MULTILINE)
"""A command of the page: the name of the file, and options."""

Writer = Callable[[Path, np.random.Generator, int], Path]


def writers() -> dict[str, Writer]:
    """By layout: writes that many samples into a folder, and returns the path."""
    sys.path.insert(0, str(ROOT / "tests" / "user_data"))
    layouts = import_module("layouts")
    frames = np.arange(21) / 20

    def the_well(folder: Path, rng: np.random.Generator, count: int) -> Path:
        fields = data.acoustics(rng, count, (64, 64), frames / 2)
        velocity = np.stack((fields["Vx"], fields["Vy"]), axis=-1)
        cuts = np.cumsum([2 * count // 5, 2 * count // 5, count // 10])
        parts = zip(np.split(fields["density"], cuts), np.split(velocity, cuts), strict=True)
        return layouts.write_the_well(folder, list(parts))

    def vtk_cells(folder: Path, rng: np.random.Generator, count: int) -> Path:
        return layouts.write_vtk_cells(folder, data.membranes(rng, count))

    def cgns(folder: Path, rng: np.random.Generator, count: int) -> Path:
        size, wings = (64, 32), data.wings(rng, count, (64, 32))
        cells = layouts.quads(*size)
        return layouts.write_cgns(folder, [(points, cells, p) for points, p in wings])

    def plates(folder: Path, rng: np.random.Generator, count: int) -> Path:
        script, file = EXAMPLES["Heat equation on plates"]
        command = [sys.executable, str(ROOT / "examples" / script), "--samples", str(count)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return folder / file

    return {
        OWN_LAYOUT: plates,
        "PDEBench, Burgers": lambda folder, rng, count: layouts.write_pdebench_burgers(
            folder, data.burgers(rng, count, 256, 2 * np.arange(41) / 40)
        ),
        "PDEBench, compressible flow": lambda folder, rng, count: layouts.write_pdebench_cfd(
            folder, data.acoustics(rng, count, (64, 64), frames / 2)
        ),
        "PDEBench, Darcy flow": lambda folder, rng, count: layouts.write_pdebench_darcy(
            folder, *data.darcy(rng, count, 64)
        ),
        "PDEBench, diffusion–reaction": lambda folder, rng, count: (
            layouts.write_pdebench_diffusion_reaction(
                folder, data.diffusion_reaction(rng, count, 64, 5 * frames)
            )
        ),
        "The Well": the_well,
        "PyTorch tensors": lambda folder, rng, count: layouts.write_tensors(
            folder, *data.darcy(rng, count, 64)
        ),
        "NetCDF with CF conventions": lambda folder, rng, count: layouts.write_netcdf_cf(
            folder, data.climate(rng, count)
        ),
        "Zarr": lambda folder, rng, count: layouts.write_zarr(
            folder, data.burgers(rng, count, 256, frames)
        ),
        "VTK cell data": vtk_cells,
        "`.pvd` series": lambda folder, rng, count: layouts.write_pvd(
            folder, data.heat(rng, count, (48, 40), 8), (48, 40)
        ),
        "OpenFOAM": lambda folder, rng, count: layouts.write_openfoam(
            folder, [data.kovasznay(float(u)) for u in rng.uniform(0.4, 2, count)], (60, 40)
        ),
        "CGNS": cgns,
        "Exodus": lambda folder, rng, count: layouts.write_exodus(
            folder, data.heat(rng, count, (49, 41), 8), (48, 40)
        ),
        "CSV table": lambda folder, rng, count: layouts.write_csv(folder, data.probes(rng, count)),
        "Parquet table": lambda folder, rng, count: layouts.write_parquet(
            folder, data.probes(rng, count)
        ),
    }


def options_for(path: Path) -> list[str]:
    """Those that the page gives to `cato train` for a file of this name."""
    found = dict(TRAIN.findall(PAGE.read_text()))
    return shlex.split(found.get(path.name, ""))


def measure(name: str, write: Writer, folder: Path, count: int, extra: Sequence[str] = ()) -> Row:
    """Seconds of all three commands on a file that is written first, unless it is in `folder`."""
    path = written(write, folder, count)
    options, run = options_for(path), folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    busy = busy_share(WATCHED_SECONDS)
    seconds, used = {}, {}
    commands = {
        "inspect": ["inspect", str(path), *options],
        "train": ["train", str(path), *options, "--out", str(run), *extra],
        "report": ["report", str(run)],
    }
    for verb, words in commands.items():
        began = time.monotonic()
        used[verb] = _run(words)
        seconds[verb] = time.monotonic() - began
    opened = open_run(run)
    figures = json.loads((run / "evaluation.json").read_text())
    problem, last = opened.problem, opened.log()[-1]
    row = {
        "name": name,
        "seconds": {verb: round(value, 1) for verb, value in seconds.items()},
        "processor_seconds": used,
        "busy": busy,
        "nice": os.nice(0),
        "load": os.getloadavg()[0],
        "shape": list(problem.shape),
        "frames": problem.num_steps if problem.time != "steady" else None,
        "outputs": len(problem.outputs),
        "steps": last["step"],
        "error": figures["relative_l2"],
        "mean_predictor": figures["mean_predictor"],
    }
    settings = {
        "samples": count,
        "options": options,
        **{group: opened.config.to_dict()[group] for group in ("model", "loss", "train")},
    }
    return stamped(row, settings, opened.config.data.fingerprint)


def written(write: Writer, folder: Path, count: int) -> Path:
    """The path of a layout's file, whose name is kept in `folder`."""
    name = folder / f"written-{count}"
    if not name.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        path = write(folder, np.random.default_rng(0), count)
        name.write_text(str(path.relative_to(folder)))
    return folder / name.read_text()


def _run(words: Sequence[str]) -> float:
    """Run `cato` as a user would, with the threads of the machine; returns processor seconds."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    environment["PYTHONPATH"] = str(ROOT)
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "cato", *words], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"cato {shlex.join(words)}: {done.stderr[-2000:]}")
    after = os.times()
    used = after.children_user + after.children_system
    return round(used - before.children_user - before.children_system, 1)


def busy_share(seconds: float) -> float:
    """Share of the processors that is in use, by others as this process waits."""

    def ticks() -> tuple[int, int]:
        values = [int(word) for word in Path("/proc/stat").read_text().split()[1:9]]
        return sum(values), values[3] + values[4]  # all, idle

    with suppress(OSError):
        total, idle = ticks()
        time.sleep(seconds)
        new_total, new_idle = ticks()
        return round(1 - (new_idle - idle) / max(1, new_total - total), 3)
    return 0.0


def pages() -> Pages:
    """The page with its table."""
    if not has_results("first_report"):
        return {}
    return {PAGE: with_block(PAGE, "first-report", block(read_results("first_report")["rows"]))}


def block(rows: Sequence[Row]) -> str:
    """The table and what was measured."""
    header = ("layout", "nodes", "frames", "inspect", "train", "report", "total", "test error")
    cells = [
        (
            row["name"],
            " × ".join(map(str, row["shape"])),
            str(row["frames"] or "/"),
            *(f"{row['seconds'][verb]:.0f} s" for verb in ("inspect", "train", "report")),
            f"{_total(row) / 60:.1f} min",
            f"{row['error']:.2%}",
        )
        for row in rows
    ]
    in_time = sum(_total(row) < LIMIT for row in rows)
    disturbed = [row for row in rows if row["busy"] > IDLE]
    remark = ""
    if disturbed:
        remark = (
            f" {len(disturbed)} of the rows were measured while other programs wanted up to "
            f"{max(row['busy'] for row in disturbed):.0%} of the processors"
        )
        if lowest := min(row["nice"] for row in disturbed):
            remark += f", at a niceness of {lowest}, which gives the measurement most of them"
        remark += "; on an idle machine it is shorter."
    return (
        f"\n{table(header, cells)}\n\n"
        f"{in_time} of {len(rows)} are below {LIMIT / 60:g} minutes.{remark} Wall-clock of the "
        f"three commands with their defaults on {rows[0]['settings']['samples']} samples of a real "
        f"problem; the test error is the relative L2 error of the report. Measured by "
        f"`make bench-first-report` ({machine(rows[0])}).\n\n"
    )


def _total(row: Mapping[str, Any]) -> float:
    return sum(row["seconds"].values())


def main() -> None:
    """Measure layouts, then write results and page."""
    known = writers()
    parser = argparse.ArgumentParser(description="time from a file to its first report")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--trial", action="store_true", help="few samples; writes nothing")
    parser.add_argument("--write", action="store_true", help="only write the files of the layouts")
    options = parser.parse_args()
    if unknown := set(options.names) - set(known):
        parser.error(f"unknown layouts: {', '.join(unknown)}; choose from {', '.join(known)}")
    rows = read_results("first_report")["rows"] if has_results("first_report") else []
    done = {row["name"] for row in rows}
    for name in options.names or [name for name in known if name not in done]:
        slug = re.sub(r"\W+", "-", name).strip("-").lower()
        folder = FILES.resolve() / (f"{slug}-trial" if options.trial else slug)
        if options.write:
            written(known[name], folder, SAMPLES)
        elif options.trial:
            row = measure(name, known[name], folder, 20, ("--train.steps", "2"))
            print(json.dumps(row, indent=1))
        else:
            row = measure(name, known[name], folder, SAMPLES)
            update_rows("first_report", [row], "name", known)
            write_pages(pages())


if __name__ == "__main__":
    main()
