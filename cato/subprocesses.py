"""Running modules of this library in Python processes of their own."""

import os
import subprocess
import sys
from typing import Any

from cato.processes import ONE_THREAD


def start_module(module: str, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
    """Start `python -m module` with one thread and a pipe to its standard input.

    It imports the same modules as this process, whatever its working folder contains (-P), and is
    in a session of its own, so that Ctrl-C reaches this process only, which then decides.
    """
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        env=os.environ | ONE_THREAD | {"PYTHONPATH": path},
        start_new_session=True,
        bufsize=0,
        **options,
    )
