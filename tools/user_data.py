"""User data: what the default reaches in three minutes, and what other models and 0.1 reach.

    make bench-user-data                          # all data sets
    python -m tools.user_data "heat equation"     # some of them
    python -m tools.user_data --trial             # seconds of training; writes nothing

The data sets are those that examples/ write and the worked examples of docs/user-data.md, as they
stand there. Every training gets the number of steps that fit into the minutes on one thread;
`--model auto` spends a part of them on its trials. Resumable: trainings are kept in RUNS, and the
row of a data set is written as soon as it is measured.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cato.cli.commands import Train
from cato.cli.parsing import parse, split_overrides
from cato.files import read_json, write_json
from cato.models.registry import model_class
from cato.processes import Worker
from cato.runs.load import load_splits
from cato.runs.settings import AUTO, RunConfig, run_config
from cato.training.train import make_fabric
from cato.training.trials import choose, share_left
from reproduce.jobs import figures_of, run_jobs
from reproduce.step_timing import in_equal_time
from tools.pages import Pages, table, with_block, write_pages
from tools.results import ROOT, Row, has_results, machine, read_results, stamped, update_rows

PAGE = ROOT / "docs" / "user-data.md"
RUNS = Path("runs") / "user-data"
MINUTES = 3.0
EXAMPLES = {
    "Heat equation on plates": ("heat_equation.py", "plates.h5"),
    "Poisson's equation in 3-D": ("poisson_3d.py", "poisson.h5"),
}
"""Scripts in examples/ and the files that they write."""
SECTION = re.compile(
    r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```"
    r"(?:(?!^## ).)*?^```bash\n(?:(?!^```).)*?^cato train ([^\n]+) --out",
    re.MULTILINE | re.DOTALL,
)
"""A worked example: its title, the code that writes its data, the arguments of `cato train`."""
OTHERS = ("fno", "f_fno")  # Models that the default is compared with, in two dimensions.


@dataclass(frozen=True)
class DataSet:
    """Data of a user: how they are written, and the arguments of `cato train` for them."""

    name: str
    write: Callable[[], None]
    arguments: str

    def configs(self, model: str | None, **options: Any) -> list[RunConfig]:
        """Settings for the data in the current folder; their number of steps is still to be set.

        Few samples are split too: folds would take their part of the steps.
        """
        changes, words = split_overrides(shlex.split(self.arguments))
        command = replace(parse(Train, words, "cato train"), model=model)
        for option, value in {"train__steps": 1, "data__folds": 0, **options}.items():
            group, name = option.split("__")
            changes.setdefault(group, {})[name] = value
        return command.configs(changes)

    def version_0_1(self) -> RunConfig:
        """The default of version 0.1 in the current settings.

        It is slightly better than 0.1 was in problems in time: there, the samples of a batch shared
        their frames.
        """
        (config,) = self.configs(None)
        train = load_splits(config).train
        batch_size = max(1, min(4, len(train) // 20, 2**14 // train.problem.num_nodes))
        model = {"model__variant": "paper", "model__heads": 2, "model__kernel": 3}
        return self.configs(
            None,
            data__conditioning="published",
            train__batch_size=batch_size,
            **(model if config.model_name == "cato" else {}),
        )[0]


def data_sets() -> dict[str, DataSet]:
    """All data sets by name."""
    written = [
        DataSet(name, partial(_run_script, script), file)
        for name, (script, file) in EXAMPLES.items()
    ]
    worked = [
        DataSet(title, partial(_run_block, code), arguments)
        for title, code, arguments in SECTION.findall(PAGE.read_text())
    ]
    return {data.name: data for data in (*written, *worked)}


def _run_script(name: str, *options: str) -> None:
    subprocess.run([sys.executable, ROOT / "examples" / name, *options], check=True)


def _run_block(code: str) -> None:
    exec(compile(code, str(PAGE), "exec"), {"__name__": "page"})


def measure(data: DataSet, folder: Path, minutes: float) -> Row:
    """Test errors on a data set, which is written into `folder`, of every way to train on it."""
    folder.mkdir(parents=True, exist_ok=True)
    with chdir(folder):
        if not Path("written").exists():
            data.write()
            Path("written").touch()
        default, *rivals = data.configs(AUTO)
        splits = load_splits(default)
        jobs = {"version_0_1": data.version_0_1(), "default": default}
        if splits.problem.dimension == 2:
            jobs |= {name: data.configs(name)[0] for name in OTHERS}
    candidates = {f"candidate-{config.model_name}": config for config in (default, *rivals)}
    timed = in_equal_time({**jobs, **candidates}, minutes, folder, workers=1)
    jobs = {name: timed[name] for name in jobs}
    chosen, trials = _choose([timed[name] for name in candidates], folder / "trials.json")
    jobs["auto"] = chosen
    runs = run_jobs(jobs, folder, 1, data.name)
    figures = {name: figures_of(run) for name, run in runs.items()}
    row = {
        "name": data.name,
        "errors": {name: found["relative_l2"] for name, found in figures.items()},
        "mean_predictor": figures["default"]["mean_predictor"],
        "model": default.model_name,
        "auto": chosen.model_name,
        "trials": trials,
        "steps": {name: config.train.steps for name, config in jobs.items()},
    }
    settings = {
        "minutes": minutes,
        "seed": default.train.seed,
        "samples": {name: len(some) for name, some in splits.datasets.items()},
        "shape": list(splits.problem.shape),
        # Not the paths of the data.
        **{
            name: {group: config.to_dict()[group] for group in ("model", "loss", "train")}
            for name, config in jobs.items()
        },
    }
    return stamped(row, settings, default.data.fingerprint)


def _choose(configs: Sequence[RunConfig], path: Path) -> tuple[RunConfig, list[Row]]:
    """What model auto trains in the time of these settings, and its trials, which `path` keeps."""
    if not path.exists():
        with Worker() as worker:
            write_json(path, worker.run(run_trials, [config.to_dict() for config in configs]))
    found = read_json(path, "trials of model auto")
    (best,) = [config for config in configs if config.model_name == found["model"]]
    assert best.train.steps is not None
    rest = max(1, int(share_left(len(configs)) * best.train.steps))
    return replace(best, train=replace(best.train, steps=rest)), found["trials"]


def run_trials(settings: Sequence[dict[str, Any]]) -> Row:
    """In a worker process: the model that is chosen between, and the trials."""
    torch.set_num_threads(1)
    configs = [run_config(values, "candidate") for values in settings]
    fabric = make_fabric(replace(configs[0].train, accelerator="cpu"))
    best, trials = choose(configs, load_splits(configs[0]), fabric)
    return {"model": best.model_name, "trials": [asdict(trial) for trial in trials]}


def pages() -> Pages:
    """The page with its table."""
    if not has_results("user_data"):
        return {}
    return {PAGE: with_block(PAGE, "measured", block(read_results("user_data")["rows"]))}


def block(rows: Sequence[Row]) -> str:
    """The table and what was measured."""
    ways = ("version_0_1", "default", *OTHERS)
    header = (
        *("data", "samples", "training mean", "version 0.1", "default"),
        *(f"`--model {name}`" for name in OTHERS),
        "`--model auto`",
    )
    cells = [
        (
            row["name"],
            str(sum(row["settings"]["samples"].values())),
            f"{row['mean_predictor']:.1%}",
            *(f"{row['errors'][way]:.2%}" if way in row["errors"] else "/" for way in ways),
            f"{row['errors']['auto']:.2%} ({model_class(row['auto']).title})",
        )
        for row in rows
    ]
    settings = rows[0]["settings"]
    return (
        f"\n{table(header, cells)}\n\n"
        f"Relative L2 test error after {settings['minutes']:g} minutes of training, one seed. "
        f"*Version 0.1* has its conditioning and its settings of CATO; FNO and F-FNO have the "
        f"conditioning of the default and work in two dimensions only. The time of auto includes "
        f"its trials. A test split is a tenth of the samples, also of few, which `cato train` "
        f"would cross-validate. Measured by `make bench-user-data` ({machine(rows[0])}).\n\n"
    )


def main() -> None:
    """Measure data sets, then write results and page."""
    known = data_sets()
    parser = argparse.ArgumentParser(description="test errors on user data")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--trial", action="store_true", help="seconds each; writes nothing")
    options = parser.parse_args()
    if unknown := set(options.names) - set(known):
        parser.error(f"unknown data: {', '.join(unknown)}; choose from {', '.join(known)}")
    chosen = [known[name] for name in options.names or known]
    torch.set_num_threads(1)
    if options.trial:
        with tempfile.TemporaryDirectory() as temporary:
            for data in chosen:
                row = measure(data, Path(temporary) / data.name, 0.002)
                print(json.dumps(row, indent=1))
        return
    for data in chosen:
        folder = RUNS.resolve() / re.sub(r"[^a-z0-9]+", "-", data.name.lower())
        update_rows("user_data", [measure(data, folder, MINUTES)], "name", known)
        write_pages(pages())


if __name__ == "__main__":
    main()
