"""The entry point: runs the command that the arguments name."""

import os
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from cato.cli.commands import COMMANDS, SECTIONS, Train
from cato.cli.parsing import parse, print_settings, split_overrides
from cato.errors import InputError, Interrupted
from cato.progress import note

EXIT_BAD_INPUT, EXIT_INTERRUPTED = 2, 130


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `cato` command."""
    run_guarded(dispatch, arguments)


def run_guarded(dispatch: Callable[[list[str]], None], arguments: list[str] | None) -> None:
    """Run a program on its arguments; errors that a user can fix are one line and exit code 2."""
    try:
        dispatch(sys.argv[1:] if arguments is None else arguments)
    except InputError as error:
        fail(str(error))
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        fail(f"{error.filename or 'a file'}: {error.strerror or error}")
    except Interrupted as stopped:
        note(str(stopped))
        sys.exit(EXIT_INTERRUPTED)
    except KeyboardInterrupt:
        note("interrupted")
        sys.exit(EXIT_INTERRUPTED)


def dispatch(arguments: list[str]) -> None:
    """Run one command."""
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_overview()
        return
    name, rest = arguments[0], arguments[1:]
    if name == "--version":
        from cato import __version__

        print(__version__)
        return
    if name == "study":
        moved = shlex.join(["python", "-m", "reproduce", *rest])
        raise InputError(f"studies moved out of the package; in a clone of the repo, run `{moved}`")
    if name not in COMMANDS:
        raise InputError(f"unknown command {name!r}; choose one of {', '.join(COMMANDS)}")
    if name == "train":
        dispatch_train(rest)
    else:
        parse(COMMANDS[name], rest, f"cato {name}").run()


def dispatch_train(arguments: list[str]) -> None:
    """`train` has its own options, and one for every setting of the chosen model and recipe."""
    changes, own = split_overrides(arguments)
    words = [word for word in own if word not in ("-h", "--help")]
    if words == own:
        parse(Train, own, "cato train").run(changes)
        return
    with suppress(SystemExit):
        parse(Train, ["--help"], "cato train")
    command = parse(Train, words, "cato train")
    config = replace(command, benchmark=command.benchmark or "darcy").configs({})[0]
    print(f"settings of {config.model_name} on {config.benchmark} {config.scale}:")
    print_settings(config)


def _print_overview() -> None:
    print("cato: neural networks that stand in for PDE solvers")
    for title, commands in SECTIONS.items():
        table = Table(box=None, show_header=False, padding=(0, 2))
        table.add_column(min_width=len("cato benchmarks") + 2, no_wrap=True)  # aligns all tables
        for name, command in commands.items():
            table.add_row(f"cato {name}", (command.__doc__ or "").splitlines()[0])
        print(f"\n{title}")
        Console().print(table)
    print("\nEvery command has --help and --json. Start with `cato demo`.")


def fail(message: str) -> NoReturn:
    """One line on standard error, exit code 2."""
    print(f"cato: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)
