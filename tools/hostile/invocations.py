"""Bad invocations of the command line: absurd values of every option, and hostile surroundings.

python -m tools.hostile.invocations 60 0        for 60 seconds, with seed 0
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from cato.cli import main
from cato.cli.commands import COMMANDS
from cato.data.generate import generate
from cato.errors import InputError
from cato.models.registry import MODELS
from cato.runs.settings import build_settings, options_of
from tools.hostile.verdicts import Attack, run_attacks

HUGE = str(10**18)
VALUES = (
    *("-1", "0", HUGE, "1e18", "inf", "-inf", "nan", "1e-320", "1e308", str(2**64), "9" * 5000),
    *("", " ", "None", "True", "0x10", "٣", "×", "\x00", "\udcff", "a b", "--", "[]", "../.."),
)
LENGTHS = ("train.epochs", "train.steps", "train.minutes", "train.min_steps")


def campaign(seconds: float, seed: int, most: int | None = None) -> dict:
    """Bad invocations at random for `seconds`, or `most`; counts of the verdicts."""
    with tempfile.TemporaryDirectory() as folder:
        return run_attacks(attacks(prepared(Path(folder)), seed), seconds, most)


def prepared(folder: Path) -> Path:
    """A folder with data to train on, files to read, and one that must not be overwritten."""
    generate("darcy", "smoke", root=folder / "data", workers=1)
    rng, nodes = np.random.default_rng(0), np.linspace(0, 1, 5)
    fields = {name: 1 + rng.random((6, 5, 5, 1)) for name in ("inputs", "targets")}
    coords = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1)
    np.savez(folder / "user.npz", coords=coords, **fields)
    (folder / "precious").write_text("precious")
    os.mkfifo(folder / "fifo.npz")
    (folder / "loop.npz").symlink_to(folder / "loop.npz")
    (folder / "zero.h5").symlink_to("/dev/zero")
    return folder


def attacks(folder: Path, seed: int) -> Iterator[Attack]:
    """All named attacks first, those with a process of their own at last; then random options."""
    for name, words in named(folder).items():
        yield name, invoke, (folder, words)
    for command in SURROUNDINGS:
        yield command, run_in_shell, (folder, command)
    rng = np.random.default_rng(seed)
    while True:
        words = random_words(folder, rng)
        yield shlex.join(words), invoke, (folder, words)


def invoke(folder: Path, words: list[str]) -> None:
    """Run a command in this process; the precious file must stay as it is."""
    os.chdir(folder)
    try:
        main(words)
    finally:
        assert (folder / "precious").read_text() == "precious", "overwritten"


def named(folder: Path) -> dict[str, list[str]]:
    """Attacks that have been successful, or could be."""
    precious, fifo = str(folder / "precious"), str(folder / "fifo.npz")
    train = partial(_train, folder)
    cases = {
        "a seed of 31 digits": ["inspect", "user.npz", "--seed", str(10**30), "--json"],
        "a negative seed": ["inspect", "user.npz", "--seed", "-1"],
        "a billion workers": ["generate", "darcy", "--scale", "smoke", "--workers", str(10**9)],
        "samples for no disk": ["generate", "darcy", "--scale", "smoke", "--count", HUGE],
        "nodes for no memory": ["generate", "pipe", "--scale", "smoke", "--resolution", HUGE],
        "cuda without a GPU": train("--train.accelerator", "cuda"),
        "a billion devices": train("--train.devices", str(10**9)),
        "endless epochs": train("--train.epochs", HUGE),
        "endless minutes": train("--train.minutes", "1e300"),
        "a width of a billion": train("--model.width", str(10**9)),
        "a width of 10^18": train("--model.width", HUGE),
        "a depth of 10^18": train("--model.depth", HUGE),
        "modes for no memory": train("--model.modes", "100000", "100000", model="fno"),
        "modes of 10^18": train("--model.modes", HUGE, HUGE, model="fno"),
        "a run into a file": train("--out", precious),
        "a run into a pipe": train("--out", fifo),
        "a run into a read-only folder": train("--out", "/proc/cato"),
        "data into a file": ["generate", "darcy", "--scale", "smoke", "--out", precious],
        "data into a read-only folder": [
            "generate",
            "darcy",
            "--scale",
            "smoke",
            "--out",
            "/proc/x",
        ],
        "an export into a file": ["export", "darcy", "--out", precious],
        "an export into a pipe": ["export", "darcy", "--out", str(folder / "fifo.npz")],
        "a demo into a file": ["demo", "--out", precious],
        "a prediction into a file": ["predict", "darcy", "user.npz", precious],
        "a prediction into a pipe": ["predict", "darcy", "user.npz", fifo],
        "a pipe": ["inspect", fifo],
        "a pipe to train on": ["train", fifo],
        "a pipe to predict from": ["predict", "darcy", fifo],
        "a loop of links": ["inspect", str(folder / "loop.npz")],
        "a loop of links to train on": ["train", str(folder / "loop.npz")],
        "an endless device": ["inspect", str(folder / "zero.h5")],
        "a name of 5000 characters": ["inspect", "a" * 5000 + ".h5"],
        "a name that is not UTF-8": ["inspect", "\udcff.h5"],
        "a zero byte in a name": ["inspect", "\x00.h5"],
        "a run with a zero byte": ["evaluate", "\x00"],
        "a folder of the system": ["inspect", "/proc"],
    }
    return cases


def _train(folder: Path, *words: str, model: str = "cato") -> list[str]:
    own = {word.removeprefix("--").replace("-", "_") for word in words if word.startswith("--")}
    steps = [] if own & set(LENGTHS) else ["--train.steps", "1"]
    out = ["--out", tempfile.mkdtemp(dir=folder) + "/run"] if "out" not in own else []
    data = ["--data.root", str(folder / "data")] if "data.root" not in own else []
    start = ["train", "darcy", "--scale", "smoke", "--model", model, "--model.width", "8"]
    return [*start, *steps, *data, *out, *words]


def random_words(folder: Path, rng: np.random.Generator) -> list[str]:
    """An absurd value for one option of a training, or as arguments of any command."""
    if rng.random() < 0.7:
        model = list(MODELS)[rng.integers(len(MODELS))]
        try:
            settings = build_settings("darcy", "smoke", model).to_dict()
        except InputError:  # a model for clouds
            settings = build_settings("elasticity", "smoke", model).to_dict()
        # Compiling takes a minute, which is no bug.
        options = sorted(set(options_of(settings)) - {"train.compile"})
        options = [name for name in options if "." in name]
        option = options[rng.integers(len(options))].replace("_", "-")
        return _train(folder, f"--{option}", VALUES[rng.integers(len(VALUES))], model=model)
    commands = sorted(set(COMMANDS) - {"serve", "demo", "train", "generate"})
    words = [commands[rng.integers(len(commands))]]
    return words + [VALUES[i] for i in rng.integers(len(VALUES), size=rng.integers(0, 4))]


# -- surroundings ---------------------------------------------------------------------------------

CATO = f"{shlex.quote(sys.executable)} -m cato"
SURROUNDINGS = (
    f"PYTHONIOENCODING=ascii {CATO} benchmarks darcy",
    f"PYTHONIOENCODING=ascii {CATO} inspect user.npz",
    f"LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 {CATO} models",
    f"LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 {CATO} inspect ×.h5",
    f"TERM=dumb COLUMNS=1 {CATO} benchmarks",
    f"NO_COLOR=1 {CATO} benchmarks darcy",
    f"{CATO} benchmarks >&-",
    f"{CATO} inspect user.npz >&-",
    f"{CATO} models | head -1",
    f"{CATO} benchmarks > /dev/full",
    f"{CATO} inspect user.npz --json > /dev/full",
    f"{CATO} inspect nothing.h5 2>&-",
    f"{CATO} inspect user.npz < /dev/null",
    f"ulimit -v 4000000; {CATO} inspect user.npz",
    f"ulimit -v 1000000; {CATO} inspect user.npz",
    f"ulimit -v 1500000; {CATO} train darcy --scale smoke --data.root data --out run-v",
    f"ulimit -n 16; {CATO} inspect user.npz",
    f"ulimit -f 1; {CATO} train darcy --scale smoke --train.steps 1 --data.root data --out run-f",
)
"""Commands for a shell in the prepared folder."""


def run_in_shell(folder: Path, command: str) -> None:
    """Run a command as a user would; raises what it shows."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *sys.path]))
    # `head` succeeds whatever comes before it.
    words = ["bash", "-c", f"set -o pipefail; {command}"]
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, check=False, timeout=120
    )
    error, text = done.stderr.decode(errors="replace"), done.stdout.decode(errors="replace")
    if "Traceback" in error or "Exception ignored" in error or done.returncode not in (0, 2):
        raise RuntimeError(f"exit code {done.returncode}: {error}")
    if done.returncode == 2:
        lines = error.splitlines()
        if "2>&-" not in command and sum(line.startswith("cato: ") for line in lines) != 1:
            raise RuntimeError(f"not one line: {error}")
        raise InputError(" ".join(lines) or "exit code 2, with no standard error to say why")
    if "NO_COLOR" in command:
        assert "\x1b" not in text
    print(text)


if __name__ == "__main__":
    print(campaign(float(sys.argv[1]), int(sys.argv[2])))
