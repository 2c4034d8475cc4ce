"""The command line: `python -m reproduce NAME` runs an experiment, `pages` writes all pages."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cato.cli.main import run_guarded
from cato.cli.output import show_rows
from cato.cli.parsing import parse
from cato.errors import InputError
from reproduce.experiment import RESULTS, all_experiments, definitions, load

RENAMED = {
    "compare": "time or epochs",
    "rates": "lr-sweep",
    "choices": "ablation-defaults",
    "finalists": "ablation-heads-rope",
    "remedies": "ablation-ns-plasticity",
    "report": "pages",
}
"""Names of version 0.1 and what replaces them."""


@dataclass
class Run:
    """Run an experiment; trainings that are finished are kept, interrupted ones resume.

    Every option replaces an entry of experiments.toml. Results of an experiment with replaced
    entries go to results/NAME unless --out says otherwise.
    """

    models: tuple[str, ...] | None = None
    """Model names; "cato" means CATO-PC on point clouds."""
    benchmarks: tuple[str, ...] | None = None
    """Benchmark names."""
    questions: tuple[str, ...] | None = None
    """Questions of an ablation, such as "rotary scale"."""
    scale: str | None = None
    """paper, small or smoke."""
    seeds: tuple[int, ...] | None = None
    """Seeds of the trainings."""
    share: float | None = None
    """Fraction of the recipe's steps to train for."""
    minutes: tuple[float, ...] | None = None
    """Training time of every model on one CPU thread, instead of a share. A comparison takes
    several, such as 2.5 5 10: the longer trainings extend the shorter ones."""
    extrapolate: float | None = None
    """Minutes up to which the fitted errors of several training times are drawn."""
    rivals: int | None = None
    """Number of models besides CATO that get all the seeds."""
    curve_seeds: int | None = None
    """Number of seeds that are trained for all of several times; the others have the longest."""
    change_seeds: int | None = None
    """Number of seeds of the changed recipes of an ablation."""
    growth_scale: str | None = None
    """Scale of the recipes whose cost is measured on growing meshes."""
    sizes: tuple[int, ...] | None = None
    """Nodes per side of the growing meshes."""
    repeats: int | None = None
    """Measurements of which the median is taken."""
    data: Path | None = None
    """Folder of the data files."""
    runs: Path | None = None
    """Folder of the run folders."""
    out: Path | None = None
    """Folder of the results."""
    workers: int | None = None
    """Trainings at a time, one thread each; one per core by default."""
    cluster: str | None = None
    """Generate and train on a Dask cluster: the address of its scheduler, or `local`."""
    json: bool = False
    """Print one JSON object."""


@dataclass
class Pages:
    """Write all pages of docs/studies, docs/studies.md and docs/results.md from results files."""

    results: Path = RESULTS
    """Folder with a folder of results for each experiment."""
    out: Path = Path("docs")
    """Folder of results.md and studies.md."""
    json: bool = False
    """Print one JSON object."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `python -m reproduce`."""
    run_guarded(_dispatch, arguments)


def _dispatch(arguments: list[str]) -> None:
    name, *rest = arguments or ["list"]
    if name in ("list", "--json", "-h", "--help"):
        _list(as_json="--json" in arguments)
    elif name == "pages":
        _pages(parse(Pages, rest, "python -m reproduce pages"))
    elif name in RENAMED:
        raise InputError(f"{name} is now `python -m reproduce {RENAMED[name]}`")
    elif name not in definitions()["experiments"]:
        names = ", ".join(definitions()["experiments"])
        raise InputError(f"no experiment {name!r}; choose one of {names}, pages")
    else:
        _run(name, parse(Run, rest, f"python -m reproduce {name}"))


def _list(as_json: bool) -> None:
    rows = [{"name": e.name, "kind": e.kind, "question": e.question} for e in all_experiments()]
    if as_json:
        show_rows("experiments", rows, as_json=True)
        return
    table = Table(box=None, show_header=False, padding=(0, 2))
    for row in rows:
        table.add_row(row["name"], row["question"])
    table.add_row("pages", (Pages.__doc__ or "").splitlines()[0])
    out = Console()
    out.print("The paper's evidence. Usage: python -m reproduce NAME [options]; see --help.\n")
    out.print(table)


def _run(name: str, options: Run) -> None:
    from reproduce.pages import study_of
    from reproduce.results import by_headline
    from reproduce.runner import run

    overrides: dict[str, Any] = asdict(options)
    as_json = overrides.pop("json")
    experiment = load(name, **overrides)
    results = run(experiment)
    table, columns = study_of(experiment.kind).SUMMARY
    rows = by_headline(results[table]) if "field" in columns else results[table]
    _show(rows, columns, (experiment.results, experiment.page), as_json)


def _pages(options: Pages) -> None:
    from reproduce.pages import write_all

    claims, files = write_all(options.results, options.out)
    rows = [vars(claim) for claim in claims]
    _show(rows, ("verdict", "text", "ours"), files, options.json, title="claims")


def _show(
    rows: list[dict[str, Any]],
    columns: Iterable[str],
    files: Sequence[Path],
    as_json: bool,
    title: str = "rows",
) -> None:
    """Print some columns of the results of a study, and the files that were written."""
    show_rows(title, [{name: row[name] for name in columns} for row in rows], as_json)
    if not as_json:
        print(f"wrote {', '.join(map(str, files))}")
