"""From the arguments of the process to a command."""

import os
import sys
from dataclasses import replace
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from cato.cli.commands import COMMANDS, Train
from cato.cli.parsing import parse, settings_type, split_overrides
from cato.errors import InputError, Interrupted
from cato.progress import note

EXIT_BAD_INPUT, EXIT_INTERRUPTED = 2, 130


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `cato` command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        dispatch(arguments)
    except InputError as error:
        fail(str(error))
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
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
        print_overview()
        return
    name, rest = split_name(arguments)
    if name == "--version":
        from cato import __version__

        print(__version__)
        return
    if name in ("study", "study -h", "study --help"):
        print_overview("study ")
        return
    if name not in COMMANDS:
        raise InputError(f"unknown command {name!r}; choose one of {', '.join(COMMANDS)}")
    if name == "train":
        dispatch_train(rest)
    else:
        parse(COMMANDS[name], rest, f"cato {name}").run()


def split_name(arguments: list[str]) -> tuple[str, list[str]]:
    """The name of the command, of two words for studies, and its own arguments."""
    num_words = 2 if arguments[0] == "study" else 1
    return " ".join(arguments[:num_words]), arguments[num_words:]


def dispatch_train(arguments: list[str]) -> None:
    """`train` takes its own options and one for every setting of the chosen model and recipe."""
    overrides, own = split_overrides(arguments)
    if "--help" in own or "-h" in own:
        print_train_help(own)
        return
    parse(Train, own, "cato train").run(overrides)


def print_train_help(own: list[str]) -> None:
    """Help of `cato train`, with the settings of the benchmark and model that were named."""
    named = [word for word in own if word not in ("-h", "--help")]
    try:
        parse(Train, ["--help"], "cato train")
    except SystemExit:
        command = parse(Train, named, "cato train")
        config = replace(command, benchmark=command.benchmark or "darcy").config([])
        print(f"settings of {config.model_name} on {config.benchmark} {config.scale}:")
        try:
            parse(settings_type(config), ["--help"], "cato train", default=config)
        except SystemExit:
            return


def print_overview(prefix: str = "") -> None:
    """What `cato` alone shows: the commands whose names begin with `prefix`."""
    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, command in COMMANDS.items():
        if name.startswith(prefix):
            table.add_row(f"cato {name}", (command.__doc__ or "").splitlines()[0])
    out = Console()
    out.print("neural networks that stand in for PDE solvers\n")
    out.print(table)
    out.print("\nEach has --help and --json.  Start with: cato demo")


def fail(message: str) -> NoReturn:
    """One line on standard error, exit code 2."""
    print(f"cato: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)
