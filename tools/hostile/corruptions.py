"""Damaged run folders: every command gives the correct result or an error of one line.

One file of a finished run is damaged at random or on purpose, or for `cato train --resume` one of a
run that was stopped before its last step; then the command reads the run in this process.
"""

import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import cato
from cato.cli import main
from cato.errors import InputError
from cato.inference.evaluate import ALL_ERRORS
from cato.processes import slowness
from tools.hostile.samples import STEPS, ending_of, is_same, train_words, workshop

LIMIT_SECONDS = 60  # A command that takes longer, in proportion to the load, twice, hangs.
Damage = Callable[[Path, Path, random.Random], None]
"""Damages a file, given the same file of another run."""


def campaign(seconds: float, seed: int, most: int | None = None) -> dict[str, int]:
    """Damage a run and read it until the time is up, or `most` times."""
    outcomes = ("correct", "one_line_errors", "wrong", "tracebacks", "hangs")
    counts: Counter[str] = Counter(dict.fromkeys(("tried", *outcomes), 0))
    began = time.monotonic()
    with workshop() as folder:
        attacks = _attacks(folder, random.Random(seed))
        while time.monotonic() < began + seconds and counts["tried"] != most:
            outcome, attack = next(attacks)
            counts["tried"] += 1
            counts[outcome] += 1
            if outcome in ("wrong", "tracebacks", "hangs"):
                print(f"{outcome}: {attack}", file=sys.stderr)
    return dict(counts)


def _attacks(folder: Path, draw: random.Random) -> Iterator[tuple[str, str]]:
    """Outcomes of attacks, each with a description."""
    _prepare(folder)
    sources = {name: folder / ("stopped" if name == "resume" else "run") for name in COMMANDS}
    references = {name: read(folder, sources[name]) for name, read in COMMANDS.items()}
    names = [str(p.relative_to(folder / "run")) for p in sorted((folder / "run").rglob("*"))]
    names = [n for n in names if n.endswith((".json", ".jsonl", ".safetensors"))] + ["checkpoints"]
    kinds, commands = list(DAMAGES), list(COMMANDS)
    deck: list[tuple[str, str]] = []
    for number in range(10**9):
        if not deck:  # every kind of damage to every file, in random order
            deck = [(kind, name) for kind in kinds for name in names]
            draw.shuffle(deck)
        kind, name = deck.pop()
        used = commands[number % len(commands)]
        if not (sources[used] / name).exists():  # the last checkpoint of a stopped run
            continue
        choices = draw.random()
        for _ in range(2):  # a hang may be the machine's, so it counts only if it comes again
            target = folder / "damaged"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(sources[used], target)
            DAMAGES[kind](target / name, folder / "other" / name, random.Random(choices))
            outcome = _outcome(COMMANDS[used], folder, target, references[used])
            if outcome != "hangs":
                break
        yield outcome, f"{kind} of {name}, then {used}"


def _prepare(folder: Path) -> None:
    """Two finished and evaluated runs that differ in the seed, a stopped one, and some inputs."""
    for name, seed in (("run", 0), ("other", 1)):
        _quiet(*train_words(folder / "user.npz", folder / name, seed))
        _quiet("evaluate", folder / name)
    shutil.copytree(folder / "run", folder / "stopped")
    for path in (folder / "stopped" / "checkpoints").glob(f"last-{STEPS:08d}.*"):
        path.unlink()  # stopped before its last step
    with np.load(folder / "user.npz") as arrays:
        np.savez(folder / "in.npz", coords=arrays["coords"], inputs=arrays["inputs"][:3])


def _quiet(*arguments: Any) -> str:
    """Standard output of a command that runs in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main([str(word) for word in arguments])
    return out.getvalue()


# -- commands, each with the part of its result that does not depend on time --------------------


def _evaluate(folder: Path, run: Path) -> Any:
    figures = json.loads(_quiet("evaluate", run, "--json"))
    return {k: v for k, v in figures.items() if "seconds" not in k and k != "path"}


def _predict(folder: Path, run: Path) -> Any:
    (folder / "out.npz").unlink(missing_ok=True)
    _quiet("predict", run, folder / "in.npz", folder / "out.npz")
    with np.load(folder / "out.npz") as arrays:
        return {name: arrays[name].tobytes() for name in arrays}


def _report(folder: Path, run: Path) -> Any:
    printed = _quiet("report", run, "--json").replace(str(run), "RUN")  # in commands to run next
    figures = json.loads(printed)
    pictures = {p.name: p.read_bytes() for p in sorted((run / "figures").glob("*.png"))}
    return {k: v for k, v in figures.items() if k != "path"}, pictures


def _resume(folder: Path, run: Path) -> Any:
    copy = folder / "resumed"  # the same name in all trainings
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy, symlinks=True, copy_function=_copy_or_move)
    _quiet("train", "--resume", copy)
    return _Ending(copy)


class _Ending:
    """What a training left, compared bit for bit."""

    def __init__(self, folder: Path) -> None:
        self.ending = ending_of(folder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ending) and is_same(self.ending, other.ending)

    __hash__ = None  # type: ignore[assignment]


def _copy_or_move(source: str, target: str) -> None:
    """A FIFO cannot be copied, and a huge sparse file should not be."""
    if os.path.isfile(source) and os.path.getsize(source) < 2**30:
        shutil.copy2(source, target)
    else:
        shutil.move(source, target)


def _load(folder: Path, run: Path) -> Any:
    with np.load(folder / "in.npz") as arrays:
        return cato.load(run).predict(arrays["inputs"]).tobytes()


def _export(folder: Path, run: Path) -> Any:
    from cato.export import describe

    target = folder / "model.pt2"
    target.unlink(missing_ok=True)
    _quiet("export", run, "--format", "pt2", "--out", target)
    about = describe(target)["run"]
    if not (run / "evaluation.json").exists():  # then there is no test error to mention
        figures = json.loads((folder / "run" / "evaluation.json").read_text())
        about["test_error"] = {key: figures.get(key) for key in ALL_ERRORS}
    return {k: v for k, v in about.items() if k != "name"}


COMMANDS: dict[str, Callable[[Path, Path], Any]] = {
    "evaluate": _evaluate,
    "predict": _predict,
    "report": _report,
    "resume": _resume,
    "load": _load,
    "export": _export,
}


class _Hang(Exception):
    pass


def _outcome(command: Callable[[Path, Path], Any], folder: Path, run: Path, reference: Any) -> str:
    errors = io.StringIO()
    signal.signal(signal.SIGALRM, _raise_hang)
    signal.alarm(round(slowness() * LIMIT_SECONDS))
    try:
        with contextlib.redirect_stderr(errors):
            result = command(folder, run)
    except _Hang:
        return "hangs"
    except SystemExit as stop:
        return "one_line_errors" if stop.code == 2 else "tracebacks"
    except InputError as error:
        return "one_line_errors" if "\n" not in str(error) else "tracebacks"
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return "tracebacks"
    finally:
        signal.alarm(0)
    if result == reference:
        return "correct"
    print(
        f"differ in {', '.join(_differences(result, reference)) or 'their files'}", file=sys.stderr
    )
    return "wrong"


def _differences(one: Any, other: Any) -> Iterator[str]:
    """Names of what two results differ in."""
    parts = zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]
    for left, right in parts:
        if isinstance(left, dict) and isinstance(right, dict):
            yield from (k for k in left.keys() | right.keys() if left.get(k) != right.get(k))


def _raise_hang(*_: Any) -> None:
    raise _Hang


# -- damages ------------------------------------------------------------------------------------


def _on_bytes(change: Callable[[bytes, random.Random], bytes]) -> Damage:
    """A change of a file's content; of a folder, of one of its files."""

    def damage(path: Path, other: Path, draw: random.Random) -> None:
        chosen = draw.choice(sorted(path.iterdir())) if path.is_dir() else path
        chosen.write_bytes(change(chosen.read_bytes(), draw))

    return damage


def _flip_bit(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]


def _flip_bytes(content: bytes, draw: random.Random) -> bytes:
    for _ in range(20):
        content = _flip_bit(content, draw)
    return content


def _cut_lines(content: bytes, draw: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join(lines[: draw.randrange(len(lines))])


def _change_number(content: bytes, draw: random.Random) -> bytes:
    """Another digit, as a person would edit it: still valid JSON."""
    places = [found.start() for found in re.finditer(rb"(?<=[: ,])[1-9]", content)]
    if not places:
        return _flip_bit(content, draw)
    place = draw.choice(places)
    digit = b"9" if content[place : place + 1] != b"9" else b"8"
    return content[:place] + digit + content[place + 1 :]


def _number_to(words: bytes) -> Damage:
    return _on_bytes(
        lambda content, draw: re.sub(rb": [0-9][0-9.e-]*", b": " + words, content, count=1)
    )


def _repeat_name(content: bytes, draw: random.Random) -> bytes:
    return content.replace(b"{", b'{"step": 1, "format": 1, "state": {}, ', 1)


def _replace_by(make: Callable[[Path], None]) -> Damage:
    def damage(path: Path, other: Path, draw: random.Random) -> None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        make(path)

    return damage


def _swap(path: Path, other: Path, draw: random.Random) -> None:
    """The file of another run; where steps differ, its newest of the same kind."""
    if not other.exists():
        kind = path.name.split("-")[0]
        other = max(other.parent.glob(f"{kind}-*{path.suffix}"))
    if path.is_dir():
        shutil.rmtree(path)
        shutil.copytree(other, path)
    else:
        shutil.copyfile(other, path)


def _swap_pair(path: Path, other: Path, draw: random.Random) -> None:
    """A checkpoint's two files of another run."""
    _swap(path, other, draw)
    if path.parent.name == "checkpoints":
        for suffix in (".json", ".safetensors"):
            _swap(path.with_suffix(suffix), other.with_suffix(suffix), draw)


def _delete_pair(path: Path, other: Path, draw: random.Random) -> None:
    _replace_by(lambda _: None)(path, other, draw)
    if path.parent.name == "checkpoints":
        for suffix in (".json", ".safetensors"):
            path.with_suffix(suffix).unlink(missing_ok=True)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**42)


DAMAGES: dict[str, Damage] = {
    "flipped bit": _on_bytes(_flip_bit),
    "flipped bytes": _on_bytes(_flip_bytes),
    "cut": _on_bytes(lambda content, draw: content[: draw.randrange(len(content))]),
    "lost lines": _on_bytes(_cut_lines),
    "other number": _on_bytes(_change_number),
    "appended bytes": _on_bytes(lambda content, draw: content + draw.randbytes(50)),
    "appended copy": _on_bytes(lambda content, draw: content + content),
    "NaN": _number_to(b"NaN"),
    "huge integer": _number_to(b"9" * 5000),
    "repeated name": _on_bytes(_repeat_name),
    "no UTF-8": _on_bytes(lambda content, draw: content.replace(b'"', b'"\xff\xfe', 1)),
    "deep nesting": _on_bytes(lambda content, draw: b"[" * 10**6),
    "huge header": _on_bytes(lambda content, draw: (2**62).to_bytes(8, "little") + content[8:]),
    "header of 90 MB": _on_bytes(lambda content, draw: (9 * 10**7).to_bytes(8, "little") + content),
    "emptied": _on_bytes(lambda content, draw: b""),
    "zeros": _on_bytes(lambda content, draw: bytes(len(content))),
    "deleted": _replace_by(lambda path: None),
    "deleted pair": _delete_pair,
    "folder instead": _replace_by(Path.mkdir),
    "FIFO instead": _replace_by(os.mkfifo),
    "symlink loop instead": _replace_by(lambda path: path.symlink_to(path.name)),
    "device instead": _replace_by(lambda path: path.symlink_to("/dev/zero")),
    "4 TB instead": _replace_by(_sparse),
    "other run's": _swap,
    "other run's pair": _swap_pair,
}
