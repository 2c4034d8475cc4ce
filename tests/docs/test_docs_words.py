"""The documentation cannot rot: what it names exists, and what it tells to type is understood."""

import ast
import fnmatch
import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import makefile
import pytest
from pages import ROOT, SPAN, cato_arguments, each_page, read, told

import cato
from cato.cli.commands import COMMANDS, Generate, Train
from cato.cli.parsing import parse, split_overrides
from cato.errors import InputError
from cato.models.registry import MODELS
from cato.user_data.read import is_user_data
from reproduce.experiment import all_experiments
from tools import mkdocs_math

LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"?(http[^\"> ]*)")
"""What a page fetches from the network when it is opened."""
FOLDERS = ("cato/", "docs/", "examples/", "reproduce/", "tests/", "tools/")


def check_arguments(*words: str) -> None:
    """Parse as `cato` would, and check what is checked before anything is done."""
    name, *arguments = words
    assert name in COMMANDS, f"no command {name}"
    if not arguments or "--help" in arguments:  # a command that a sentence names, or its help
        return
    changes, own = split_overrides(list(arguments))
    command = parse(COMMANDS[name], own if name == "train" else list(arguments), f"cato {name}")
    if isinstance(command, Train) and command.resume is None and command.benchmark:
        is_own = is_user_data(command.benchmark) or command.targets  # a file of the reader's
        if not is_own:
            command.configs(changes)
    if isinstance(command, Generate):
        command.specs()


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in read(page).links:
        if not link.startswith(("http://", "https://")):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), f"{link} does not exist"
            if anchor:
                titles = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
                anchors = [re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles]
                assert anchor in anchors, f"{link}: no such section"


@each_page
def test_files_that_are_named_exist(page: Path) -> None:
    for span in read(page).spans:
        if span.startswith(FOLDERS) and re.fullmatch(r"[\w./-]+", span):
            found = any(ROOT.glob(span.replace("NAME", "*")))  # NAME stands for any
            assert found, f"{span} does not exist"


@each_page
def test_commands_are_understood(page: Path) -> None:
    for words in told(page):
        arguments = cato_arguments(words)
        if arguments is not None:
            try:
                check_arguments(*arguments)
            except InputError as error:
                pytest.fail(f"{' '.join(words)}: {error}")


@each_page
def test_make_targets_and_scripts_exist(page: Path) -> None:
    for words in told(page):
        if words[0] == "make" and len(words) == 2:
            pattern = words[1].replace("NAME", "*")  # NAME stands for any
            assert fnmatch.filter(makefile.RECIPES, pattern), f"no target {words[1]}"
        if words[0] == "python" and len(words) > 1 and words[1].endswith(".py"):
            assert (ROOT / words[1]).exists(), f"{words[1]} does not exist"
        if words[:2] == ["python", "-m"] and words[2].startswith("tools."):
            module = ROOT / words[2].replace(".", "/")
            files = module.with_suffix(".py"), module / "__main__.py"
            assert any(file.exists() for file in files), f"no {words[2]}"


@pytest.mark.parametrize("target", makefile.RECIPES)
def test_recipes_of_make_are_understood(target: str) -> None:
    for words in makefile.cato_commands(target):
        check_arguments(*words[1:])


@pytest.mark.parametrize("target", makefile.RECIPES)
def test_modules_that_make_runs_exist(target: str) -> None:
    for module, *_ in makefile.module_commands(target):
        if module.split(".")[0] in ("reproduce", "tools"):
            assert importlib.util.find_spec(module), f"no module {module}"


def test_the_recipes_were_found() -> None:
    assert makefile.cato_commands("demo") == [["cato", "demo"]]
    names = [name.removeprefix("study-") for name in makefile.RECIPES if "study-" in name]
    assert set(names) == {"pages", *(experiment.name for experiment in all_experiments())}
    assert makefile.module_commands("generate") == [["tools.generate"]]
    assert ["tools.generate", "--check"] in makefile.module_commands("check-generated")


def test_a_test_run_checks_generated_pages() -> None:
    (words,) = makefile.commands("test")
    assert words[0] == "make"
    assert {"lint", "check-generated", "fast-tests"} <= set(words)


@each_page
def test_python_is_python_and_names_are_public(page: Path) -> None:
    for language, text in read(page).blocks:
        if language == "python":
            for node in ast.walk(ast.parse(text)):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "cato"
                ):
                    assert node.attr in cato.__all__
    for span in read(page).spans:
        for name in re.findall(r"^cato\.([a-z_]+)\(", span):
            assert name in cato.__all__


def test_the_start_page_names_every_command() -> None:
    lines = [cato_arguments(words) for words in told(ROOT / "docs" / "index.md")]
    assert set(COMMANDS) <= {arguments[0] for arguments in lines if arguments}


def test_the_reference_has_every_public_name() -> None:
    shown = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    for name in cato.__all__:
        item = getattr(cato, name)
        assert {item.__module__, f"{item.__module__}.{name}"} & set(shown), f"{name} is not shown"
        assert item.__doc__


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`make docs`, in a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    (words,) = (line for line in makefile.RECIPES["docs"] if "mkdocs" in line)
    *_, program, _build, _quiet = makefile.filled_in(words.strip()).split()
    assert program == ".venv/bin/mkdocs"
    arguments = ["-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_menu_and_the_site_is_built(site: Path) -> None:
    """The pages of decisions and models are reached from others."""
    menu = (ROOT / "mkdocs.yml").read_text().split("nav:")[1]
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name in menu, f"{page.name} is not in the menu"
        assert (site / page.with_suffix(".html").name).exists()


def test_the_site_needs_no_network_and_its_search_works_from_disk(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = LOADED.findall(page.read_text())
        assert not loaded, f"{page.relative_to(site)} loads {loaded[0]}"
    assert "iframe-worker.js" in (site / "index.html").read_text()
    assert (site / "search" / "search_index.js").exists()


def test_formulas_are_typeset(site: Path) -> None:
    for page in ("benchmarks/darcy.html", "benchmarks/navier_stokes.html", "models/fno.html"):
        assert "<math " in (site / page).read_text(), page
    assert "<math " not in (site / "architecture.html").read_text()


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("h ← h + Σ_j w_j v_j", r"h \leftarrow  h + \sum _{j} w_{j} v_{j}"),
        ("K h = F⁻¹[R(k)]", "K h = F^{-1}[R(k)]"),
        ("q̃ = softmax(q) / √d", r"\tilde{q} = \mathrm{softmax}(q) / \sqrt{d}"),
        ("ν = 1e-5,   u = 0 on the wall", r"ν = 10^{-5},\quad u = 0 \text{ on the wall}"),
    ],
)
def test_unicode_formulas_become_latex(formula: str, expected: str) -> None:
    assert mkdocs_math.latex(formula) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at most C_chart δ ‖f‖", "at most C<sub>chart</sub> δ ‖f‖"),
        ("(ζ_j) and u_x, h^1.95", "(ζ<sub>j</sub>) and u<sub>x</sub>, h<sup>1.95</sup>"),
        ("W_K^2", "W<sub>K</sub><sup>2</sup>"),
        ("`W_K`, [u_x](u_x.md), f_fno and num_samples", None),
    ],
)
def test_symbols_get_indices(text: str, expected: str | None) -> None:
    assert mkdocs_math.with_symbols(text) == (expected or text.replace("[u_x]", "[u<sub>x</sub>]"))


@pytest.mark.parametrize("name", ["cato", "cato_pc"])
def test_defaults_in_the_model_tables(name: str) -> None:
    title = MODELS[name].title
    (section,) = re.findall(
        rf"^## {title}: .*?(?=^## )", (ROOT / "docs/models.md").read_text(), re.M | re.S
    )
    told: dict[str, str] = {}
    for names, values in re.findall(r"^\| (`.+?`) \| (.+?) \|", section, re.M):
        told |= zip(SPAN.findall(names), values.replace("`", "").split(", "), strict=True)
    defaults = {f.name: f.default for f in fields(MODELS[name].config_class)}
    assert told == {key: str(value).lower().removesuffix(".0") for key, value in defaults.items()}


@pytest.mark.parametrize(
    "arguments",
    [
        "fly",
        "train darcy --widht 3",
        "train darcy --model.widht 3",
        "generate darcy --scale huge",
        "evaluate runs/x --fast",
        "predict runs/x",
    ],
)
def test_a_wrong_command_would_be_found(arguments: str) -> None:
    with pytest.raises((InputError, AssertionError)):
        check_arguments(*arguments.split())
