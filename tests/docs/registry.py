"""How the commands of the documentation are run: made small, or by a test that is named here.

Every command in a shell block, and every Python block, is run by test_docs_run.py in a temporary
folder after the substitutions below, unless a test of `COVERED` runs what it says. A command that
can be neither makes test_docs_run.py fail.
"""

import re
from collections.abc import Mapping

SUBSTITUTIONS = {
    r"--scale (small|paper)\b": "--scale smoke",
    r'"(small|paper)"': '"smoke"',
    r"--train\.minutes [\d.]+": "--train.minutes 0.01",
    r"\bminutes=[\d.]+": "minutes=0.01",
    r"--train\.epochs \d+": "--train.epochs 1",
    r'"epochs": \d+': '"epochs": 1',
}
"""What makes a command small, in shell and Python alike."""
FEW_STEPS = ("--train.steps", "2", "--train.accelerator", "cpu")
"""Added to a training whose length the page does not say."""

COVERED = {
    r"python -m reproduce epochs\b.*": (
        "tests/reproduce/test_compare.py::test_a_row_summarises_its_runs"
    ),
    r"cato serve\b.*": "tests/serve/test_serve_process.py::test_a_server_from_start_to_end",
    r"cato generate all\b.*": "tests/cli/test_cli.py::test_generate_all",
    r"cato generate \w+ --scale paper": "tests/cli/test_cli.py::test_generate_all",
    r"cato train (\w+) --scale small --out runs/\1": (
        "tests/runs/test_recipes.py::test_every_benchmark_goes_the_whole_way"
    ),
    r"cato train \w+ .*--original PATH": (
        "tests/cli/test_train_original.py::"
        "test_the_run_knows_its_files_and_is_evaluated_on_the_published_test_set"
    ),
    r"torchrun --nnodes 2 .*-m cato train .*": (
        "tests/training/test_nodes.py::test_two_nodes_train_like_one_process"
    ),
    r"cato train .*--train\.(devices 2|strategy fsdp)\b.*|torchrun .*-m cato train .*": (
        "tests/training/test_train.py::test_two_processes_give_the_loss_curve_of_one"
    ),
    r"cato train (.*--train\.schedule wsd|--resume .*--train\.minutes)\b.*": (
        "tests/training/test_extend.py::test_a_branch_leaves_its_run_as_it_was"
    ),
    r"cato train .*--train\.precision bf16-mixed": "tests/training/test_train.py::test_bf16_trains",
    r"cato evaluate darcy": (
        "tests/runs/test_pretrained.py::test_nothing_is_written_into_the_library"
    ),
    r"make bench-export": (
        "tests/export/test_export_models.py::test_the_table_gets_its_rows_and_nothing_else"
    ),
}
"""Commands, as patterns, that another test runs: on several processes, over HTTP, for longer."""
COVERED_PAGES: Mapping[str, str] = {
    "docs/user-data.md": "tests/user_data/test_user_page.py::test_worked_example",
    "docs/layouts.md": "tests/user_data/test_user_layouts.py::test_commands_of_the_page",
}
"""Pages that a test of their own runs, block by block."""


def covering_test(command: str) -> str | None:
    """The test that runs a command of the documentation."""
    for pattern, test in COVERED.items():
        if re.fullmatch(pattern, command):
            return test
    return None


def made_small(text: str) -> str:
    """A command or Python block that takes seconds."""
    for pattern, replacement in SUBSTITUTIONS.items():
        text = re.sub(pattern, replacement, text)
    return text
