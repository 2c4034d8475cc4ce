"""A stand-in for the solver task, imported by worker processes."""

import os
import time

import numpy as np

from cato.serve.jobs import Solution

DIE, FAIL = -1.0, -2.0


def sleep(editor, task, values):
    """Sleep for some seconds, or die, or fail; the result holds the process id."""
    (seconds,) = values
    if seconds == DIE:
        os._exit(1)
    if seconds == FAIL:
        raise ZeroDivisionError("secret")
    time.sleep(seconds)
    return Solution({"pid": np.array(os.getpid())}, seconds, False)
