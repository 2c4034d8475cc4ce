"""What test_toy does with its copy of cato, in one process: imports take longer than the work.

Writes what every step answers to session.json in the current folder.
"""

import json
import os
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from fastapi.testclient import TestClient
from safetensors.numpy import load

import cato.cli
import reproduce.cli
import reproduce.jobs
from cato.data.published import read_published
from cato.processes import Worker
from cato.serve.app import create_app
from cato.serve.models import load_models
from tools import benchmark_pages
from tools.pages import write_pages


def run_cato(*words: str) -> dict[str, Any]:
    """What a command prints with --json."""
    with redirect_stdout(StringIO()) as out:
        cato.cli.main([*words, "--json"])
    return json.loads(out.getvalue())


def train() -> dict[str, Any]:
    """A run of two steps. Not of CATO, whose loops Numba might have to compile first."""
    options = ("--scale", "smoke", "--model", "fno", "--out", "run", "--train.steps", "2")
    return run_cato("train", "toy", *options, "--train.accelerator", "cpu")


def read() -> dict[str, Any]:
    splits = read_published("toy", Path("."))
    sizes = [len(dataset) for dataset in splits.datasets.values()]
    return {"sizes": sizes, "first": splits.test.targets[0, 0, 0].item()}


def explore() -> dict[str, Any]:
    api = "/explorer/api"
    with TestClient(create_app(load_models(["mine=run"])), base_url="http://localhost") as client:
        response = client.get(f"{api}/benchmarks")
        assert response.status_code == 200, response.text
        listed = response.json()["benchmarks"]
        drawn = client.get(f"{api}/models/mine/draw?seed=1")
        headers = {"content-type": drawn.headers["content-type"]}
        answer = client.post(f"{api}/models/mine/predict", content=drawn.content, headers=headers)
        assert answer.status_code == 200, answer.text
        arrays = load(answer.content)
    shapes = {name: array.shape for name, array in arrays.items()}
    finite = bool(np.isfinite(arrays["outputs"]).all())
    return {"listed": listed, "shapes": shapes, "finite": finite}


class Here(Worker):
    """Jobs in this process, which has imported everything; they send its output to their log."""

    def run(self, function: Any, *arguments: Any, timeout: float | None = None) -> Any:
        streams = {number: os.dup(number) for number in (1, 2)}
        try:
            return function(*arguments)
        finally:
            for number, kept in streams.items():
                os.dup2(kept, number)


def compare() -> None:
    """A comparison of one short training, and the pages with its results."""
    reproduce.jobs.Worker = Here
    options = ("--benchmarks", "toy", "--models", "fno", "--scale", "smoke", "--seeds", "0")
    folders = ("--share", "1", "--runs", "runs", "--out", "results/epochs", "--workers", "1")
    reproduce.cli.main(["epochs", *options, *folders])
    reproduce.cli.main(["pages", "--results", "results", "--out", "docs"])


if __name__ == "__main__":
    answers = {
        "package": cato.__file__,
        "benchmarks": run_cato("benchmarks"),
        "generate": run_cato("generate", "toy", "--scale", "smoke", "--workers", "1"),
        "train": train(),
        "evaluate": run_cato("evaluate", "run"),
        "report": run_cato("report", "run"),
        "published": read(),
        "explorer": explore(),
        "comparison": compare(),
        "pages": [path.name for path in write_pages(benchmark_pages.pages())],
    }
    Path("session.json").write_text(json.dumps(answers))
