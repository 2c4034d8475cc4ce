"""The command line as a user meets it: results, JSON, and one-line errors for every mistake."""

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from cato import files
from cato.benchmarks import BENCHMARKS
from cato.cli import main
from cato.cli.commands import COMMANDS as ALL_COMMANDS
from cato.surrogate import Surrogate

TINY = [
    *("--model.width", "8", "--model.depth", "1", "--train.batch-size", "8"),
    *("--train.epochs", "2", "--train.accelerator", "cpu"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data_root):
    folder = tmp_path_factory.mktemp("runs") / "run"
    main(["train", "darcy", "--scale", "smoke", *TINY, *paths(data_root, folder)])
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy of a trained run, to tamper with."""
    return shutil.copytree(trained, tmp_path / "run")


def paths(data_root, folder):
    return ["--data.root", str(data_root), "--out", str(folder)]


def output_of(capsys, *arguments):
    """What a command prints with --json, as values."""
    capsys.readouterr()
    main([*map(str, arguments), "--json"])
    return json.loads(capsys.readouterr().out)


def error_of(capsys, *arguments):
    """The one line that a command prints before it exits with code 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main([*map(str, arguments)])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if line.startswith("cato: ")]
    assert len(lines) == 1
    assert captured.err.splitlines()[-1] == lines[0]
    return lines[0]


# -- what works ---------------------------------------------------------------------------------


def test_overview_names_every_command(capsys):
    main([])
    text = capsys.readouterr().out
    for name in ALL_COMMANDS:
        assert f"cato {name}" in text


def test_help_of_train_lists_settings_of_the_model(capsys):
    main(["train", "darcy", "--help"])
    text = capsys.readouterr().out
    assert "--model.rotary-scale" in text
    assert "--train.minutes" in text


@pytest.mark.parametrize("command", sorted(set(ALL_COMMANDS) - {"train"}))
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize("rest", [["compare", "--help"], ["compare", "--seeds", "0"], []])
def test_studies_answer_with_the_new_command(rest, capsys):
    """Every option is passed on."""
    new = " ".join(["python -m reproduce", *rest])
    assert f"run `{new}`" in error_of(capsys, "study", *rest)


def test_generate(tmp_path, capsys):
    arguments = ["generate", "darcy", "--scale", "smoke", "--count", 3, "--seed", 5]
    made = output_of(capsys, *arguments, "--workers", 1, "--out", tmp_path)
    assert made["train"] == 3
    assert made["path"] == str(tmp_path / "darcy-smoke-seed5-n3.h5")


def test_generate_all(tmp_path, capsys):
    arguments = ["generate", "all", "--scale", "smoke", "--count", 1, "--splits", "train"]
    made = output_of(capsys, *arguments, "--out", tmp_path)["generated"]
    assert [row["path"] for row in made] == [
        str(tmp_path / f"{name}-smoke-seed0-n1-train.h5") for name in BENCHMARKS
    ]
    assert all(row["rejected_draws"] >= 0 for row in made)


def test_evaluate_prints_one_json_object(run, capsys):
    figures = output_of(capsys, "evaluate", run)
    assert 0 < figures["relative_l2"] < 1
    assert figures["num_samples"] == 8
    assert figures["seconds_per_sample"] > 0
    assert (
        json.loads((run / "evaluation.json").read_text())["relative_l2"] == figures["relative_l2"]
    )


def test_evaluate_at_a_resolution_it_was_not_trained_on(run, capsys):
    figures = output_of(capsys, "evaluate", run, "--resolution", 21)
    assert figures["shape"] == [21, 21]
    assert 0 < figures["relative_l2"] < 1


def test_predict_equals_evaluate(run, data_root, tmp_path, capsys):
    with h5py.File(data_root / "darcy-smoke-seed0.h5") as file:
        arrays = {name: file["test"][name][:] for name in ("inputs", "targets")}
    np.savez(tmp_path / "in.npz", **arrays)
    figures = output_of(capsys, "predict", run, tmp_path / "in.npz", tmp_path / "out.npz")
    assert figures["relative_l2"] == pytest.approx(
        output_of(capsys, "evaluate", run)["relative_l2"], rel=1e-5
    )
    with np.load(tmp_path / "out.npz", allow_pickle=False) as out:
        assert out["outputs"].shape == arrays["targets"].shape
        assert out["errors"].mean() == pytest.approx(figures["relative_l2"], rel=1e-6)


def test_one_mesh_serves_all_samples(run, tmp_path):
    line = np.linspace(0, 1, 15)
    nodes = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1)
    outputs = []
    for name, coords in (("alone", nodes), ("first", nodes[None])):
        source, target = tmp_path / f"{name}.npz", tmp_path / f"{name}-out.npz"
        np.savez(source, inputs=np.ones((3, 15, 15, 1)), coords=coords)
        main(["predict", str(run), str(source), str(target)])
        outputs.append(np.load(target)["outputs"])
    np.testing.assert_array_equal(*outputs)


def test_predicting_solves_every_sample_once(run, tmp_path, monkeypatch):
    """But the first, which is solved once more before the others are timed."""
    solve, sizes = Surrogate.solve, []

    def counting(self, coords, inputs, **kwargs):
        sizes.append(len(inputs))
        return solve(self, coords, inputs, **kwargs)

    monkeypatch.setattr(Surrogate, "solve", counting)
    np.savez(tmp_path / "in.npz", inputs=np.ones((5, 15, 15, 1)))
    main(["predict", str(run), str(tmp_path / "in.npz"), str(tmp_path / "out.npz")])
    assert sizes == [1, 5]


def test_report_is_one_self_contained_file(run, capsys):
    path = output_of(capsys, "report", run)["path"]
    html = (run / "report.html").read_text()
    assert path == str(run / "report.html")
    assert html.count("data:image/png;base64,") == 6
    error = json.loads((run / "evaluation.json").read_text())["relative_l2"]
    assert f"Test error {100 * error:.2f} %" in html
    for words in ("learned chart", "the numerical solver", "cato train darcy --scale smoke"):
        assert words in html
    assert "--model.width 8" in html  # the command that reproduces it
    assert "http" not in html.replace("http-equiv", "")


def test_models_and_benchmarks(capsys):
    models = output_of(capsys, "models")["models"]
    assert {"name", "family", "geometry", "parameters"} <= models[0].keys()
    assert output_of(capsys, "models", "cato")["--model.width"] == {
        "default": 64,
        "darcy_paper": 96,
    }
    assert output_of(capsys, "benchmarks")["benchmarks"][0]["name"] == "darcy"
    assert "85 × 85" in output_of(capsys, "benchmarks", "darcy")["paper"]


def test_json_leaves_nothing_else_on_standard_output(data_root, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "cato", "train", "darcy", "--scale", "smoke", "--json", *TINY,
         *paths(data_root, tmp_path / "run")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["epochs"] == 2
    assert "Traceback" not in done.stderr


# -- what does not ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("fly", "unknown command"),
        ("train", "say what to train on"),
        ("train darzy", "no benchmark 'darzy'; choose one of darcy"),
        ("train darcy --scale huge", "no scale 'huge'"),
        ("train darcy --model resnet", "unknown model 'resnet'; choose one of cato"),
        ("train darcy --model cato_pc", "is a grid. Try --model cato"),
        ("train darcy --model.widht 3", "unknown setting model.widht; choose one of width"),
        ("train darcy --train.epochs", "valid integer; got no value"),
        ("train darcy --train.minutes inf", "finite"),
        ("train darcy --coords x,y", "are for user data"),
        ("train darcy --model.width three", "three"),
        ("train darcy --model.width 0", "greater than 0"),
        ("train darcy --model.width 10 --model.heads 4", "multiple of 2 × heads"),
        ("train darcy --train.optimizer sgd", "sgd"),
        ("train darcy --train.epochs -1", "greater than 0"),
        ("train darcy --loss.gdl -1", "greater than or equal to 0"),
        ("train darcy --loss.gdl 1e308", "less than or equal to 1000000000"),
        ("train darcy --train.learning-rate 1e-320", "greater than or equal to 0.000000000001"),
        ("train darcy --model.mlp-ratio 1e308", "less than or equal to 100"),
        ("train darcy --train.compile maybe", "maybe"),
        ("train darcy --fast", "--fast"),
        ("train darcy --resume runs/x", "takes all settings from the run"),
        ("train --resume nowhere", "not a run folder"),
        ("demo --minutes 0", "greater than or equal to 0.000000001"),
        ("evaluate nowhere", "not a run folder"),
        ("generate darcy --count 0", "1 or more"),
        ("generate darcy --seed -1", "0 or more"),
        ("generate darcy --resolution 2", "at least"),
        ("generate darcy --workers 0", "1 or more"),
        ("models resnet", "unknown model"),
        ("benchmarks burgers", "no benchmark"),
    ],
)  # fmt: skip
def test_wrong_words(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in error_of(capsys, *arguments.split())
    assert not list(tmp_path.iterdir())  # nothing was written


def test_training_into_a_folder_in_use(run, data_root, capsys):
    before = (run / "run.json").read_bytes()
    message = error_of(capsys, "train", "darcy", "--scale", "smoke", *TINY, *paths(data_root, run))
    assert "already holds a run" in message
    assert "--resume" in message
    assert (run / "run.json").read_bytes() == before


def test_output_path_is_a_file(data_root, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        arguments = ["train", "darcy", "--scale", "smoke", *TINY, *paths(data_root, folder)]
        assert str(tmp_path / "file") in error_of(capsys, *arguments)
    assert (tmp_path / "file").read_text() == "mine"


def test_run_of_another_version(run, capsys):
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"format": 99, "cato": "9.9"}))
    message = error_of(capsys, "evaluate", run)
    assert "cato 9.9" in message
    assert "format 99" in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: "{", "cannot be read"),
        (lambda r: "[]", "not the record"),
        (lambda r: json.dumps({"format": 1}), "incomplete"),
        (lambda r: json.dumps(r | {"checksum": ""}), "lost its checksum"),
        (lambda r: json.dumps(r, indent=2).replace("darcy", "pipe"), "was edited"),
        (lambda r: sealed(r, model_name="x"), "unknown model"),
        (lambda r: sealed(r, train={"lr": 1}), "train.lr;"),
    ],
)
def test_damaged_record(run, change, words, capsys):
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(change(record))
    assert words in error_of(capsys, "evaluate", run)


def sealed(record, **settings):
    """run.json with other settings and the checksum of them, as no version of cato writes it."""
    changed = {k: v for k, v in record.items() if k != "checksum"}
    changed["config"] = changed["config"] | settings
    return files.sealed(json.dumps(changed).encode(), "run.json", record["id"]).decode()


def test_weights_that_do_not_fit(run, capsys):
    record = json.loads((run / "run.json").read_text())
    model = record["config"]["model"] | {"width": 16}
    (run / "run.json").write_text(sealed(record, model=model))
    assert "do not fit" in error_of(capsys, "evaluate", run)


def test_truncated_weights(run, capsys):
    for weights in (run / "checkpoints").glob("best-*.safetensors"):
        weights.write_bytes(weights.read_bytes()[:100])
    assert "damaged" in error_of(capsys, "evaluate", run)


def test_run_without_weights(run, capsys):
    shutil.rmtree(run / "checkpoints")
    assert "no trained weights yet" in error_of(capsys, "evaluate", run)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"outputs": np.zeros((1, 15, 15, 1))}, "with arrays outputs: inputs are missing"),
        ({"inputs": np.zeros((0, 15, 15, 1))}, "no sample"),
        ({"inputs": np.zeros((1, 15, 15, 2))}, "inputs must have shape"),
        ({"inputs": np.zeros((15, 15))}, "inputs must have shape"),
        ({"inputs": np.zeros((1, 1, 15, 1))}, "coords are required"),
        ({"inputs": np.full((2, 15, 15, 1), np.nan)}, "values of sample 0 are NaN or infinite"),
        ({"inputs": np.full((1, 15, 15, 1), "a")}, "real numbers"),
        ({"inputs": np.zeros((1, 15, 15, 1)), "coords": np.zeros((3, 3, 2))}, "coords must have"),
        ({"inputs": np.ones((1, 15, 15, 1)), "targets": np.ones((1, 15, 15))}, "targets are"),
        ({"inputs": np.ones((2, 15, 15, 1)), "targets": np.ones((1, 15, 15, 1))}, "targets are"),
    ],
)  # fmt: skip
def test_wrong_arrays(run, arrays, words, tmp_path, capsys):
    np.savez(tmp_path / "in.npz", **arrays)
    message = error_of(capsys, "predict", run, tmp_path / "in.npz", tmp_path / "out.npz")
    assert words in message
    assert "in.npz" in message
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04truncated"])
def test_foreign_files(run, content, tmp_path, capsys):
    (tmp_path / "in.npz").write_bytes(content)
    message = error_of(capsys, "predict", run, tmp_path / "in.npz", tmp_path / "out.npz")
    assert "cannot be read as .npz" in message


def test_predictions_are_not_overwritten(run, tmp_path, capsys):
    np.savez(tmp_path / "in.npz", inputs=np.ones((1, 15, 15, 1)))
    (tmp_path / "out.npz").write_text("mine")
    assert "not overwritten" in error_of(
        capsys, "predict", run, tmp_path / "in.npz", tmp_path / "out.npz"
    )
    assert (tmp_path / "out.npz").read_text() == "mine"


def test_damaged_data_file(run, data_root, tmp_path, capsys):
    root = shutil.copytree(data_root, tmp_path / "data")
    path = root / "darcy-smoke-seed0.h5"
    path.write_bytes(path.read_bytes()[:2000])
    arguments = ["train", "darcy", "--scale", "smoke", *TINY, *paths(root, tmp_path / "new")]
    message = error_of(capsys, *arguments)
    assert "darcy-smoke-seed0.h5" in message
    assert "cato generate darcy --scale smoke" in message
    assert not (tmp_path / "new").exists()


def test_full_disk(run, tmp_path, capsys, monkeypatch):
    """A write that fails leaves what was there before and says why."""
    import cato.files

    (run / "evaluation.json").write_text("before")

    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cato.files.os, "fsync", no_space)
    message = error_of(capsys, "evaluate", run)
    assert "No space left on device" in message
    assert (run / "evaluation.json").read_text() == "before"
    assert not list(run.glob(".*.tmp"))


def test_read_only_folder(data_root, tmp_path, capsys):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if os.geteuid() == 0:  # to whom nothing is read-only, but the system's own folders
        locked = Path("/proc/cato")
    arguments = ["train", "darcy", "--scale", "smoke", *TINY, *paths(data_root, locked / "run")]
    message = error_of(capsys, *arguments)
    assert f"cannot write into {locked}" in message
    assert "choose another folder" in message
    message = error_of(capsys, "generate", "darcy", "--scale", "smoke", "--out", locked / "data")
    assert f"cannot write into {locked}" in message


@pytest.fixture
def no_large_files():
    """The system refuses the write itself: no file of this process may grow beyond 1 MB."""
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, most))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))


@pytest.mark.usefixtures("no_large_files")
def test_no_room_for_a_checkpoint(data_root, tmp_path, capsys):
    arguments = ["train", "darcy", "--scale", "smoke", *TINY, *paths(data_root, tmp_path / "run")]
    message = error_of(capsys, *arguments, "--model.width", 64, "--model.depth", 4)
    assert "cannot write" in message
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))


def test_sentences_of_the_help_have_no_line_breaks(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit):
        main(["inspect", "--help"])
    assert "OpenFOAM cases or other files, one per sample." in capsys.readouterr().out
