"""The code, the libraries and the machine that produce a result."""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch


def environment() -> dict[str, Any]:
    """Versions and hardware, as a run folder records them."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


@cache
def commit() -> str | None:
    """The commit of the checkout that cato is imported from, as of the first call.

    Followed by "+changes" if tracked files differ from it. None in an installed wheel.
    """
    return commit_of(Path(__file__).resolve().parents[2])


def commit_of(folder: Path) -> str | None:
    """The commit checked out at a folder, or None if the folder is not the root of a checkout."""
    root = _git(folder, "rev-parse", "--show-toplevel")
    # A wheel may be installed somewhere below another project's checkout.
    if root is None or Path(root).resolve() != folder.resolve():
        return None
    head = _git(folder, "rev-parse", "HEAD")
    if head is None:  # no commit yet
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return head if changes == "" else f"{head}+changes"


def _git(folder: Path, *arguments: str) -> str | None:
    """Output of a git command, or None if it fails or git is not installed."""
    command = ["git", "-C", str(folder), *arguments]
    # Variables of a hook that runs this would point git to another repository.
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=variables)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "")
