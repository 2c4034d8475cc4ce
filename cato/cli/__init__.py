"""The command line: `cato COMMAND`, see `cato --help`.

Results go to standard output (a table, or one JSON object with --json), notes and progress to
standard error. Errors that a user can fix are one line and exit code 2.
"""

from cato.cli.main import main

__all__ = ["main"]
