"""Peak memory of commands on a large set of samples, and the speed of streamed training.

    make bench-streaming                    # writes tools/results/streaming.json and docs/data.md
    python -m tools.streaming --only speed  # or memory: the other figures stay as they are
    python -m tools.streaming --gigabytes 1 # a smaller set; writes nothing

Memory: `cato train`, `cato evaluate` and `cato predict` run on a tiny and on a large set, each in a
process of its own. Counted is the resident memory of the process with its children, so pages that
they share count twice. The files of Darcy have the shapes of its generated data and are written by
the writer of generated data, but the fields are synthetic: no number here depends on their values.
Predicted is a user's HDF5 file with many input channels, so that reading it is most of the work.

Speed: steps on samples in memory and on the same samples streamed alternate in one process.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import torch

from cato.benchmarks.contract import Sample
from cato.data.sampling import AcceptedSample
from cato.data.spec import DataSpec
from cato.data.store import write_store
from cato.memory import readable_size
from tools.pages import Pages, table, with_block, write_pages
from tools.results import ROOT, Row, has_results, machine, read_results, stamped, write_results

PAGE = ROOT / "docs" / "data.md"
RESOLUTION = 257
CHANNELS, SIDE = 64, 128  # Of the file that is predicted for.
GIGABYTES = 8.2
TINY = 16  # Samples of the tiny sets.
STEPS = 20
LIMIT_GIB, LEAST_SHARE = 1.5, 0.9
SPEED_SAMPLES, SPEED_ROUNDS, SPEED_STEPS = 600, 7, 4


def main() -> int:
    """Measure; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="memory and speed of streamed data")
    parser.add_argument("--gigabytes", type=float, default=GIGABYTES, help="size of the large set")
    parser.add_argument("--only", choices=("memory", "speed"), help="measure only this")
    options = parser.parse_args()
    size, only = options.gigabytes, options.only
    found: dict[str, list[Row]] = {}
    with TemporaryDirectory(prefix="cato-streaming-") as folder:
        if only != "speed":
            found["rows"] = measure_memory(Path(folder), size)
        if only != "memory":
            found["speed"] = [measure_speed(Path(folder) / "speed")]
    if size == GIGABYTES:
        known = read_results("streaming") if has_results("streaming") else {}
        write_results("streaming", known | found)
        write_pages(pages())
    return 0 if all(row["reached"] for rows in found.values() for row in rows) else 1


# -- the sets -------------------------------------------------------------------------------------


def darcy(num_samples: int) -> DataSpec:
    """The set with this number of training samples."""
    return DataSpec("darcy", "smoke", count=num_samples, resolution=RESOLUTION)


def write_darcy(root: Path, num_samples: int) -> Path:
    """A file with the shapes of generated data, written as these are."""
    spec = darcy(num_samples)
    root.mkdir(parents=True, exist_ok=True)
    write_store(root / spec.file_name, spec, _synthetic(spec))
    return root / spec.file_name


def _synthetic(spec: DataSpec) -> Iterator[AcceptedSample]:
    """Smooth fields of random size."""
    coords = spec.definition.coords(spec.parameters)
    assert coords is not None
    wave = np.sin(np.pi * coords).prod(-1, keepdims=True).astype(np.float32)
    rng = np.random.default_rng(0)
    for _ in spec.tasks:
        size = np.float32(rng.uniform(0.5, 2))
        sample = Sample(3 + size * wave, wave / size, None, {"residual": 0.0})
        yield AcceptedSample(sample, 1)


def write_wide(path: Path, num_samples: int) -> Path:
    """A user's file with many channels."""
    rng = np.random.default_rng(0)
    line = np.linspace(0, 1, SIDE)
    base = rng.random((SIDE, SIDE, CHANNELS), np.float32)
    with h5py.File(path, "w") as file:
        file["coords"] = np.stack(np.meshgrid(line, line, indexing="ij"), -1)
        inputs = file.create_dataset("inputs", (num_samples, *base.shape), np.float32)
        targets = file.create_dataset("targets", (num_samples, SIDE, SIDE, 1), np.float32)
        for k in range(num_samples):
            inputs[k] = base * np.float32(rng.uniform(0.5, 2))
            targets[k] = inputs[k, ..., :1] + 1
    return path


# -- memory ---------------------------------------------------------------------------------------


def measure_memory(folder: Path, gigabytes: float) -> list[Row]:
    """Peaks of every command on both sets."""
    peaks: dict[str, dict[str, int]] = {"train": {}, "evaluate": {}, "predict": {}}
    sizes: dict[str, dict[str, int]] = {name: {} for name in peaks}
    per_sample = 2 * 4 * RESOLUTION**2
    for name, count in (("tiny", TINY), ("large", int(gigabytes * 1e9 / per_sample))):
        path = write_darcy(folder / name, count)
        run = folder / f"run-{name}"
        words = ["--scale", "smoke", "--model", "fno", "--out", str(run)]
        words += ["--data.root", str(path.parent), "--data.count", str(count)]
        words += ["--data.resolution", str(RESOLUTION), "--data.streamed", "yes"]
        words += ["--train.steps", str(STEPS), "--train.accelerator", "cpu"]
        peaks["train"][name] = peak_of("train", "darcy", *words)
        peaks["evaluate"][name] = peak_of("evaluate", str(run))
        sizes["train"][name] = sizes["evaluate"][name] = path.stat().st_size
        path.unlink()
    per_sample = 4 * (CHANNELS + 1) * SIDE**2
    run = folder / "run-wide"
    few = write_wide(folder / "few.h5", 9)
    words = ["--scale", "smoke", "--model", "fno", "--out", str(run), "--train.steps", "3"]
    words += ["--data.streamed", "yes", "--train.accelerator", "cpu"]
    peak_of("train", str(few), *words)
    for name, count in (("tiny", TINY), ("large", int(gigabytes * 1e9 / per_sample))):
        path = write_wide(folder / f"{name}.h5", count)
        peaks["predict"][name] = peak_of("predict", str(run), str(path))
        sizes["predict"][name] = path.stat().st_size
        path.unlink()
    settings = {"resolution": RESOLUTION, "channels": CHANNELS, "side": SIDE, "steps": STEPS}
    rows = []
    for name, peak in peaks.items():
        more = (peak["large"] - peak["tiny"]) / 2**30
        row = {"command": name, "bytes": sizes[name], "peak": peak, "more_gib": more}
        row |= {"limit_gib": LIMIT_GIB, "reached": more <= LIMIT_GIB}
        rows.append(stamped(row, settings, darcy(TINY).key))
        print(row, flush=True)
    return rows


def peak_of(*words: str) -> int:
    """Largest resident memory of a command and its children, in bytes."""
    began, largest = time.monotonic(), 0
    with subprocess.Popen([sys.executable, "-m", "cato", *words]) as process:
        while process.poll() is None:
            largest = max(largest, sum(map(_resident, [process.pid, *_children(process.pid)])))
            time.sleep(0.05)
    if process.returncode:
        raise RuntimeError(f"cato {' '.join(words)} ended with code {process.returncode}")
    seconds = time.monotonic() - began
    print(f"{words[0]}: {readable_size(largest)} in {seconds:.0f} s", flush=True)
    return largest


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):  # it has ended
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _children(pid: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        direct = [int(child) for task in tasks for child in task.read_text().split()]
    except OSError:
        return []
    return [*direct, *(grandchild for child in direct for grandchild in _children(child))]


# -- speed ----------------------------------------------------------------------------------------


def measure_speed(folder: Path) -> Row:
    """Steps per second on streamed samples, in units of those in memory."""
    from cato.runs.folder import Run
    from cato.runs.load import load_splits
    from cato.runs.settings import build_settings
    from cato.training.loop import Training, new_model
    from cato.training.train import make_fabric

    path = write_darcy(folder, SPEED_SAMPLES)
    num_bytes = path.stat().st_size
    trainings: dict[str, Any] = {}
    fabric: Any = None
    for streamed in ("no", "yes"):
        data: dict[str, Any] = {"root": str(folder), "count": SPEED_SAMPLES}
        data |= {"resolution": RESOLUTION, "streamed": streamed, "conditioning": "published"}
        groups: dict[str, dict[str, Any]] = {
            "data": data,
            "train": {"accelerator": "cpu", "steps": 10**6},
        }
        config = build_settings("darcy", "smoke", "cato", groups)
        splits = load_splits(config)
        run = Run(Path(), config, splits.problem, {})
        fabric = fabric or make_fabric(config.train)
        training = Training(run, splits, fabric, new_model(config, splits.problem))
        training.state.num_steps = 10**6
        training.step()
        trainings[streamed] = training
    seconds: dict[str, list[float]] = {"no": [], "yes": []}
    for number in range(SPEED_ROUNDS):
        for streamed in ("no", "yes") if number % 2 else ("yes", "no"):
            began = time.perf_counter()
            for _ in range(SPEED_STEPS):
                trainings[streamed].step()
            seconds[streamed].append(time.perf_counter() - began)
    share = median(m / s for m, s in zip(seconds["no"], seconds["yes"], strict=True))
    row = {
        "bytes": num_bytes,
        "share": share,
        "seconds_per_step": median(seconds["yes"]) / SPEED_STEPS,
        "least_share": LEAST_SHARE,
        "reached": share >= LEAST_SHARE,
        "all_seconds": seconds,
    }
    print(row, flush=True)
    settings: dict[str, Any] = {"resolution": RESOLUTION, "samples": SPEED_SAMPLES}
    settings |= {"rounds": SPEED_ROUNDS, "steps": SPEED_STEPS, "model": "cato"}
    settings |= {"threads": torch.get_num_threads()}
    return stamped(row, settings, darcy(SPEED_SAMPLES).key)


# -- the page -------------------------------------------------------------------------------------


def pages() -> Pages:
    """The measured part of docs/data.md."""
    if not has_results("streaming"):
        return {}
    results = read_results("streaming")
    if results.keys() < {"rows", "speed"}:  # one of them was not measured yet
        return {}
    rows, (speed,) = results["rows"], results["speed"]
    cells = [
        (
            f"`cato {row['command']}`",
            readable_size(row["bytes"]["large"]),
            readable_size(row["peak"]["tiny"]),
            readable_size(row["peak"]["large"]),
            f"{row['more_gib']:+.2f} GiB",
            "reached" if row["reached"] else "not reached",
        )
        for row in rows
    ]
    header = ("command", "data", "peak on a tiny set", "peak", "difference", "at most +1.5 GiB")
    verdict = "reached" if speed["reached"] else "not reached"
    block = (
        f"\n{table(header, cells)}\n\n"
        f"Training makes {speed['share']:.0%} of the steps per second that it makes on the same "
        f"{readable_size(speed['bytes'])} in memory (median of {speed['settings']['rounds']} "
        f"alternating rounds; target {speed['least_share']:.0%}, {verdict}). Measured with "
        f"{machine(speed)}, by `make bench-streaming`.\n\n"
    )
    return {PAGE: with_block(PAGE, "streaming", block)}


if __name__ == "__main__":
    sys.exit(main())
