"""The entry point: runs the command that the arguments name."""

import codecs
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
from cato.processes import WorkerDied
from cato.progress import note

EXIT_BAD_INPUT, EXIT_INTERRUPTED = 2, 130
PLAIN = {
    "×": "x",
    "·": "*",
    "–": "-",
    "—": "-",
    "→": "->",
    "≥": ">=",
    "≤": "<=",
    "±": "+-",
    "…": "...",
}
"""What a terminal without these characters shows; a question mark for all others."""
OUT_OF_MEMORY = (
    "allocate memory",
    "out of memory",
    "not enough memory",
    "cannot map",
    "map segment",
)
"""Words in the messages of PyTorch and of the system if memory is exhausted."""
LOST_PROCESS = ("connection reset by peer", "connection closed by peer", "broken pipe")
"""Words in the messages of PyTorch if another process of a training has ended."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `cato` command."""
    run_guarded(dispatch, arguments)


def run_guarded(dispatch: Callable[[list[str]], None], arguments: list[str] | None) -> None:
    """Run a program on its arguments; errors that a user can fix are one line and exit code 2."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        if hasattr(getattr(sys, name), "reconfigure"):  # not where tests capture it
            getattr(sys, name).reconfigure(errors="cato")
    try:
        dispatch(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except InputError as error:
        fail(str(error))
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        _drop_output()
    except OSError as error:
        _drop_output()  # which may be what failed: a full disk
        fail(f"{error.filename or 'cannot read or write'}: {error.strerror or error}")
    except (MemoryError, RuntimeError, ImportError) as error:
        if isinstance(error, WorkerDied):
            fail(f"{error}, probably out of memory")
        if _says(error, LOST_PROCESS):
            fail("another process of this command has ended; see its message, then resume the run")
        if not isinstance(error, MemoryError) and not _says(error, OUT_OF_MEMORY):
            raise
        fail("out of memory; choose smaller data, a smaller model or batch, or free memory")
    except Interrupted as stopped:
        note(str(stopped))
        sys.exit(EXIT_INTERRUPTED)
    except KeyboardInterrupt:
        note("interrupted")
        sys.exit(EXIT_INTERRUPTED)


def _says(error: Exception, any_of: tuple[str, ...]) -> bool:
    return any(words in str(error).lower() for words in any_of)


def _drop_output() -> None:
    """Discard the rest of the output, so that the interpreter does not complain when it exits."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, "?") for character in text), error.end


codecs.register_error("cato", _plain)


def _has_surrogates(word: str) -> bool:
    """Whether a word has bytes that are not UTF-8, which Python replaces by surrogates."""
    return any("\ud800" <= letter <= "\udfff" for letter in word)


def dispatch(arguments: list[str]) -> None:
    """Run one command."""
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_overview()
        return
    for word in arguments:
        if "\0" in word or _has_surrogates(word):
            raise InputError(f"{word!a} is not text in UTF-8; rename or retype it")
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
    print("cato: neural networks that replace PDE solvers")
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
    line = " ".join(message.split())
    # A file's name may hold control characters, which a terminal would obey.
    print("cato:", "".join(c if c.isprintable() else "?" for c in line), file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)
