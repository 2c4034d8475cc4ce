"""The command line: `cato COMMAND`, see `cato --help`.

Results go to standard output (a table for people, one JSON object with --json), notes and progress
to standard error. What a user can mend is one line and exit code 2.
"""

from cato.cli.main import main

__all__ = ["main"]
