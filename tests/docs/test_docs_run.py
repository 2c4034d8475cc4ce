"""Every command and Python block of the documentation is run, or named as another test's.

What is made small and what another test runs is listed in registry.py.
"""

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx
import jaxtyping
import makefile
import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from pages import PAGES, ROOT, SHELL, lines_of, named, read, shell_commands
from registry import COVERED, COVERED_PAGES, FEW_STEPS, covering_test, made_small

import cato
from cato.cli import main
from cato.cli.parsing import split_overrides
from cato.data.generate import generate
from cato.data.normalise import Normaliser
from cato.runs.settings import RunConfig
from cato.serve.app import create_app
from cato.serve.models import ServedModel

OURS = [p for p in PAGES if named(p).startswith("docs/") or named(p) == "README.md"]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def kind_of(command: str) -> str:
    """How a shell command is checked: run, covered, make, pip or activate.

    Raises:
        AssertionError: In no way.
    """
    words = shlex.split(command)
    if covering_test(command):
        return "covered"
    match words:
        case ["cato", *_]:
            return "run"
        case ["make", target] if target in makefile.RECIPES:
            return "make"
        case ["pip", "install", what] if set(extras_of(what)) <= set(EXTRAS):
            return "pip"
        case [".", script] if script == f"{makefile.VARIABLES['VENV']}/bin/activate":
            return "activate"
    raise AssertionError(f"{command!r} is neither run nor covered: see tests/docs/registry.py")


def extras_of(what: str) -> list[str]:
    """Of `.`, `cato-pde[vtk]` or `.[serve,vtk]`; another package is none of our extras."""
    match = re.fullmatch(r"(?:\.|cato-pde)(?:\[([\w,-]+)\])?", what)
    return (match[1] or "").split(",") if match and match[1] else [] if match else [what]


def has_code(page: Path) -> bool:
    return any(language in (*SHELL, "python") for language, _ in read(page).blocks)


def is_run_here(page: Path) -> bool:
    if named(page) in COVERED_PAGES:
        return False
    has_python = any(language == "python" for language, _ in read(page).blocks)
    return has_python or any(kind_of(line) == "run" for line in shell_commands(page))


@pytest.mark.parametrize("page", filter(has_code, OURS), ids=named)
def test_every_command_has_a_test(page: Path) -> None:
    for command in shell_commands(page):
        kind_of(command)


@pytest.mark.parametrize(
    "command",
    [
        "curl example.org",
        "make coffee",
        "pip install 'cato-pde[fast]'",
        "pip install numpy",
        ". venv/bin/activate",
        "python script.py",
        "torchrun -m other",
    ],
)
def test_a_command_without_a_test_would_be_found(command: str) -> None:
    with pytest.raises(AssertionError, match="neither run nor covered"):
        kind_of(command)


@pytest.mark.parametrize("test", sorted({*COVERED.values(), *COVERED_PAGES.values()}))
def test_covering_tests_exist_and_are_not_slow(test: str) -> None:
    path, name = test.split("::")
    text = (ROOT / path).read_text()
    (before,) = re.findall(rf"((?:^@.*\n(?:^[ )].*\n)*)*)^def {name}\(", text, re.MULTILINE)
    assert "@pytest.mark.slow" not in before  # single parameters may be


def test_every_entry_of_the_registry_is_needed() -> None:
    commands = [command for page in OURS for command in shell_commands(page)]
    for pattern in COVERED:
        assert any(re.fullmatch(pattern, command) for command in commands), f"{pattern} is unused"


@pytest.mark.parametrize("page", COVERED_PAGES)
def test_a_page_with_its_own_test_is_run_whole(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / COVERED_PAGES[page].split("::")[0]
    monkeypatch.syspath_prepend(path.parent)  # for what the test imports
    spec = importlib.util.spec_from_file_location("own_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    blocks = [block for section in module.EXAMPLES.values() for block in section]
    run = [line for language, text in blocks if language in SHELL for line in lines_of(text)]
    assert set(shell_commands(ROOT / page)) <= set(run)
    python = [text for language, text in read(ROOT / page).blocks if language == "python"]
    assert python == [text for language, text in blocks if language == "python"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Darcy at smoke scale, for all pages."""
    root = tmp_path_factory.mktemp("data")
    generate("darcy", "smoke", root=root, workers=1)
    return root


@pytest.fixture
def folder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a page is followed: it has the data, and the in.npz of the quickstart."""
    (tmp_path / "data").symlink_to(data)
    monkeypatch.chdir(tmp_path)
    test = cato.load_dataset("darcy", "smoke").test
    np.savez("in.npz", **test.arrays("inputs", "targets"))
    return tmp_path


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A model x, untrained, behind the address that the pages ask."""
    problem = cato.Problem("flow", "grid", (29, 29), ("a",), ("u",))
    config = cato.model_config("cato", width=8, depth=1, heads=2)
    line = np.linspace(0, 1, 29, dtype=np.float32)
    nodes = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    model = cato.Surrogate(
        cato.build_model("cato", config, problem),
        Normaliser(problem),
        coords=torch.from_numpy(nodes),
    ).eval()
    with TestClient(
        create_app({"x": ServedModel("x", model, {})}), base_url="http://localhost"
    ) as client:

        def post(address: str, **options: object) -> httpx.Response:
            answer = client.post(address.removeprefix("http://127.0.0.1:8000"), **options)
            assert answer.status_code == 200, answer.text
            return answer

        monkeypatch.setattr(httpx, "post", post)
        yield


def run_command(command: str) -> None:
    """A `cato` command, made small, in this process."""
    words = shlex.split(made_small(command))[1:]
    changes, own = split_overrides(words)
    starts = words[0] == "train" and not {"--help", "--resume"} & set(own)
    says = bool({"epochs", "steps", "minutes"} & changes.get("train", {}).keys())
    with suppress(SystemExit) if "--help" in words else nullcontext():
        main([*words, *(FEW_STEPS if starts and not says else ())])


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("page", filter(is_run_here, OURS), ids=named)
def test_a_page_can_be_followed(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # for exports
    for language, text in read(page).blocks:
        if language == "python":
            exec(compile(made_small(text), named(page), "exec"), {"__name__": "page"})
        elif language in SHELL:
            for command in lines_of(text):
                if kind_of(command) == "run":
                    run_command(command)


def test_the_demo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make demo`, at smoke scale."""
    from cato.runs import settings

    build = settings.build_settings
    scales = []

    def build_smoke(source: str, scale: str, *changes: Any, **options: Any) -> RunConfig:
        scales.append(scale)
        return build(source, "smoke", *changes, **options)

    monkeypatch.setattr(settings, "build_settings", build_smoke)
    for _ in range(2):  # the second goes on with the first
        main(["demo", "--minutes", "0.01"])
    assert scales == ["small"]
    assert "Test error" in (folder / "runs" / "demo" / "report.html").read_text()
