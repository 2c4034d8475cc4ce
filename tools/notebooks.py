"""Execute the tutorials in examples/notebooks and keep their outputs in them.

python -m tools.notebooks                  # make notebooks
python -m tools.notebooks inverse_design   # one of them

A cell with the tag `parameters` holds sizes, which the tests make small. A notebook keeps a digest
of the code that its outputs belong to, with the versions and hardware that produced them.
"""

import argparse
import hashlib
import re
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from cato.files import atomic_write
from cato.runs.provenance import commit, environment
from tools.results import ROOT

FOLDER = ROOT / "examples" / "notebooks"
PARAMETERS = "parameters"
TIMEOUT = 3600  # Seconds for a cell.
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # Jupyter asks for them, the site cannot show them.


def executed(path: Path, folder: Path, parameters: Mapping[str, Any] | None = None) -> Any:
    """A notebook with the outputs of its cells, executed in a folder.

    `parameters` replace values of the cell of parameters.
    """
    notebook = nbformat.read(path, as_version=4)
    (cell,) = (c for c in notebook.cells if PARAMETERS in c.metadata.get("tags", ()))
    source = cell.source
    changes = [f"{name} = {value!r}" for name, value in (parameters or {}).items()]
    known = {line.partition(" = ")[0] for line in source.splitlines()}
    unknown = [name for name in parameters or {} if name not in known]
    assert not unknown, f"{path.name} has no parameters {unknown}"
    cell.source = "\n".join((source, *changes))
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3", resources=resources).execute()
    cell.source = source
    return notebook


def digest(notebook: Any) -> str:
    """Of the code of a notebook."""
    code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256("\n\n".join(map("".join, code)).encode()).hexdigest()[:16]


def stored(notebook: Any) -> Any:
    """A notebook with what is worth keeping of its outputs: results, not progress."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
            for output in cell.outputs:
                if "text" in output:
                    output.text = COLOURS.sub("", output.text)
            cell.metadata.pop("execution", None)
    notebook.metadata["cato"] = {
        "code": digest(notebook),
        "commit": commit(),
        "executed": datetime.now(UTC).isoformat(timespec="seconds"),
        **environment(),
    }
    return notebook


def main() -> int:
    """Execute and write."""
    names = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    parser = argparse.ArgumentParser(description="execute the tutorials and keep their outputs")
    parser.add_argument("names", nargs="*", choices=names, default=names)
    for name in parser.parse_args().names:
        path = FOLDER / f"{name}.ipynb"
        with tempfile.TemporaryDirectory() as folder:
            notebook = stored(executed(path, Path(folder)))
        with atomic_write(path) as temporary:
            temporary.write_text(nbformat.writes(notebook) + "\n")
        print(f"executed {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
