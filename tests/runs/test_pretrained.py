"""The models that come with the library: whole, honest, found by name, and never written to."""

import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import cato
from cato.benchmarks import BENCHMARKS, editor_for, get_benchmark
from cato.cli.catalogue import pretrained_card
from cato.cli.commands import COMMANDS, Pretrained
from cato.cli.parsing import parse, split_overrides
from cato.data.sampling import generate_sample
from cato.errors import InputError
from cato.files import write_sealed
from cato.inference.conformal import load_band
from cato.inference.evaluate import ALL_ERRORS
from cato.inference.predict import predict_file
from cato.runs import folder as runs
from cato.runs.folder import PRETRAINED, open_run, pretrained_names
from cato.runs.load import data_spec, load_surrogate
from cato.runs.settings import ON_CPUS, DataConfig, build_settings, run_config
from cato.training.train import train
from reproduce.experiment import Experiment
from reproduce.paper import PAPER

ROOT = Path(__file__).parents[2]
MAX_BYTES = 15e6
each_model = pytest.mark.parametrize("name", pretrained_names())


@pytest.fixture(scope="module")
def script():
    """tools/pretrained.py."""
    path = ROOT / "tools" / "pretrained.py"
    spec = importlib.util.spec_from_file_location("pretrained_script", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def files_in(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def figures_of(name):
    return json.loads((PRETRAINED / name / "evaluation.json").read_text())


# -- what is shipped ----------------------------------------------------------------------------


def test_there_is_one_for_each_benchmark_of_the_paper_and_they_are_small():
    assert set(PAPER) <= set(pretrained_names()) <= set(BENCHMARKS)
    assert sum(p.stat().st_size for p in PRETRAINED.rglob("*") if p.is_file()) < MAX_BYTES


@each_model
def test_only_what_a_prediction_needs_is_shipped(name):
    best = [path.stem for path in (PRETRAINED / name / "checkpoints").glob("*.json")]
    assert len(best) == 1
    weights = f"checkpoints/{best[0]}"
    assert set(files_in(PRETRAINED / name)) == {
        *("run.json", "log.jsonl", "evaluation.json", "band.safetensors", "range.safetensors"),
        *(f"{weights}.json", f"{weights}.safetensors"),
    }
    with safe_open(PRETRAINED / name / f"{weights}.safetensors", "pt") as file:
        assert not [key for key in file.keys() if key.startswith("optimizer")]  # noqa: SIM118


def test_no_file_tells_of_the_machine_it_was_made_on():
    absolute = re.compile(r"(?<![\w.)])(?:/|~/|[A-Z]:\\)\w[\w.-]*/")
    assert absolute.search('"--out /home/me/run"')
    for path in PRETRAINED.rglob("*"):
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                text = json.dumps(file.metadata())
        elif path.is_file():
            text = path.read_text()
        else:
            continue
        assert not absolute.search(text), f"{path}: {absolute.search(text)}"


@each_model
def test_the_command_on_the_card_trains_with_the_shipped_settings(name):
    run = open_run(PRETRAINED / name)
    assert run.config.benchmark == name
    data = run.config.data
    kept = {name: getattr(data, name) for name in ("seed", "conditioning", "symmetries")}
    assert data == replace(DataConfig(), **kept)
    _, command, *arguments = shlex.split(run.command)
    changes, own = split_overrides(arguments)
    (config,) = parse(COMMANDS[command], own, "cato train").configs(changes)
    # Runs of old have recorded what precision and compiler were on CPUs.
    told = replace(config.train, **ON_CPUS) if run.config.train.compile is False else config.train
    assert replace(config, train=told) == run.config


@each_model
def test_loading_by_name_gives_a_model_that_predicts(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = cato.load(name)
    problem = model.problem
    rng = np.random.default_rng(0)
    inputs = rng.random((2, *problem.shape, problem.num_inputs), np.float32)
    coords = rng.random((*problem.shape, problem.dimension), np.float32)
    outputs = model.predict(inputs, coords)
    frames = () if problem.time == "steady" else (problem.num_steps,)
    assert outputs.shape == (2, *frames, *problem.shape, problem.num_outputs)
    assert np.isfinite(outputs).all()
    assert not list(tmp_path.iterdir())


def error_of_fresh_sample(name, index):
    """The error on one test sample, drawn and solved anew."""
    run = open_run(PRETRAINED / name)
    sample = generate_sample(data_spec(run.config), "test", index).sample
    coords = sample.coords
    if coords is None:
        coords = load_surrogate(run).coords.numpy().reshape(*run.problem.shape, -1)
    outputs = load_surrogate(run).predict(sample.inputs[None], coords[None])[0]
    return np.linalg.norm(outputs - sample.targets) / np.linalg.norm(sample.targets)


@pytest.mark.parametrize(
    "name",
    ["darcy", *(pytest.param(n, marks=pytest.mark.slow) for n in BENCHMARKS if n != "darcy")],
)
def test_the_weights_give_the_error_on_the_card(name):
    figures = figures_of(name)
    assert figures["relative_l2"] < 0.5 * figures["mean_predictor"]
    # The worst sample is the one whose error and number are known.
    error = error_of_fresh_sample(name, figures["worst_sample"])
    assert error == pytest.approx(figures["worst"], rel=1e-3)


@each_model
def test_the_band_belongs_to_the_weights_and_covers_about_what_it_promises(name):
    (vouch,) = (PRETRAINED / name / "checkpoints").glob("*.json")
    step = json.loads(vouch.read_text())["state"]["step"]
    assert load_band(open_run(PRETRAINED / name), step) is not None
    band = figures_of(name)["band"]
    # Of 200 test and about 100 validation samples; far less would be no band.
    assert all(
        share >= band["promised_samples"] - 0.1 for share in band["covered_samples"].values()
    )


# -- cards --------------------------------------------------------------------------------------


@each_model
def test_the_card_says_what_was_evaluated(name):
    card, figures = pretrained_card(name), figures_of(name)
    assert {key: card[key] for key in ALL_ERRORS} == {key: figures[key] for key in ALL_ERRORS}
    headline = {"plasticity": "displacement"}.get(name)
    assert card["headline"] == headline
    assert set(card["fields"]) == {*card["outputs"], *([headline] if headline else [])}
    assert card["covered_samples"] == figures["band"]["covered_samples"]
    parameters = load_surrogate(open_run(PRETRAINED / name)).model.parameters()
    assert card["parameters"] == sum(p.numel() for p in parameters)
    assert card["training_samples"] == get_benchmark(name).scale("small").train


def test_the_page_is_what_the_shipped_files_say(script):
    for path, text in script.pages().items():
        assert (ROOT / path).read_text() == text


def test_the_list_on_the_command_line(capsys):
    Pretrained(json=True).run()
    listed = json.loads(capsys.readouterr().out)["pretrained"]
    assert [row["name"] for row in listed] == list(BENCHMARKS)
    fields = figures_of("plasticity")["fields"]
    (plasticity,) = (row for row in listed if row["name"] == "plasticity")
    assert list(plasticity["test_error"].items()) == [
        ("displacement", fields["displacement"]["relative_l2"]),
        ("all outputs", figures_of("plasticity")["relative_l2"]),
    ]
    assert plasticity["training_mean"]["displacement"] == fields["displacement"]["mean_predictor"]
    Pretrained("plasticity").run()
    shown = capsys.readouterr().out
    error = f"{fields['displacement']['relative_l2']:.4g}"
    assert shown.index(error) < shown.index(f"{figures_of('plasticity')['relative_l2']:.4g}")
    Pretrained("darcy", json=True).run()
    card = json.loads(capsys.readouterr().out)
    assert card["relative_l2"] == figures_of("darcy")["relative_l2"]
    with pytest.raises(InputError, match=r"no model 'cod'.*darcy, navier_stokes"):
        Pretrained("cod").run()


# -- names --------------------------------------------------------------------------------------


def test_what_exists_at_a_path_wins_over_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_run("darcy").pretrained == PRETRAINED / "darcy"
    shutil.copytree(PRETRAINED / "pipe", "darcy")
    run = open_run("darcy")
    assert (run.pretrained, run.config.benchmark) == (None, "pipe")
    (tmp_path / "pipe").mkdir()
    with pytest.raises(InputError, match="the folder pipe here is not a run folder, and hides"):
        open_run("pipe")
    with pytest.raises(InputError, match=r"comes with cato \(darcy, navier_stokes"):
        open_run("darky")
    with pytest.raises(InputError, match="not a run folder"):
        open_run("elsewhere/darcy")


@pytest.fixture(scope="module")
def tiny(script, tmp_path_factory):
    """A folder with data, a tiny run, and a library that it is shipped with."""
    folder = tmp_path_factory.mktemp("tiny")
    values = build_settings("darcy", "smoke", "cato").to_dict()
    values["model"] |= {"width": 8, "depth": 1}
    values["train"] |= {"epochs": 2, "accelerator": "cpu"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run = train(run_config(values, "test"), Path("trained"))
        script.package(run, Path("library/darcy"))
    return folder


@pytest.fixture
def shipped(tiny, tmp_path, monkeypatch):
    """The tiny model in the library, with its data and its run in the working folder."""
    folder = shutil.copytree(tiny, tmp_path / "here")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(runs, "PRETRAINED", folder / "library")
    return folder / "library" / "darcy"


def test_a_finished_run_is_shipped_with_its_own_figures(script, shipped):
    run = open_run("darcy")
    assert run.record["command"] == script.command_of(run.config)
    assert len(run.log()) == 2
    whole = load_surrogate(open_run("trained")).state_dict()
    for name, tensor in load_surrogate(run).state_dict().items():
        torch.testing.assert_close(tensor, whole[name], rtol=0, atol=0)
    figures = json.loads((shipped / "evaluation.json").read_text())
    assert figures["relative_l2"] == pytest.approx(cato.evaluate("trained")["relative_l2"])


def test_an_unfinished_run_and_other_data_are_not_shipped(script, shipped):
    run = open_run("trained")
    run.write_log(run.log()[:1])
    with pytest.raises(InputError, match="not trained to the end"):
        script.package(run, shipped)
    elsewhere = replace(run.config, data=replace(run.config.data, root="elsewhere"))
    with pytest.raises(InputError, match=r"in \./data"):
        script.package(replace(run, config=elsewhere), shipped)


def test_of_several_seeds_the_median_is_shipped_and_all_are_recorded(
    script, shipped, monkeypatch, capsys
):
    library, results = Path("new").resolve(), Path("results").resolve()
    monkeypatch.setattr(script, "PRETRAINED", library)
    monkeypatch.setattr(sys.modules["tools.results"], "RESULTS", results)
    monkeypatch.setattr(sys.modules["tools.results"], "ROOT", results.parent)
    config = open_run("trained").config
    trainings = [replace(config.train, seed=seed, epochs=1) for seed in (0, 1, 2)]
    seeds = [train(replace(config, train=t), Path(f"seed{t.seed}")) for t in trainings]
    for run, error in zip(seeds, (0.3, 0.1, 0.2), strict=True):  # as the queue leaves them
        fields = {"u": dict.fromkeys(ALL_ERRORS[2:], error)}
        figures = {"headline": None, "fields": fields, **fields["u"]}
        (run.folder / "job.json").write_text(json.dumps(figures))
    script.package_median(seeds)
    record = json.loads((library / "darcy/run.json").read_text())
    assert record["config"]["train"]["seed"] == 2
    assert record["test_error_by_seed"] == {"0": 0.3, "1": 0.1, "2": 0.2}
    rows = json.loads((results / "pretrained.json").read_text())["rows"]
    assert [(row["seed"], row["relative_l2"], row["is_shipped"]) for row in rows] == [
        (0, 0.3, False), (1, 0.1, False), (2, 0.2, True)
    ]  # fmt: skip
    assert all(row["data"] == run.record["data"] for row, run in zip(rows, seeds, strict=True))
    packaged = files_in(library)
    script.package_median(seeds[:1])  # the median is still seed 2
    assert files_in(library) == packaged
    other = record | {"config": seeds[0].record["config"]}
    del other["checksum"]
    write_sealed(library / "darcy/run.json", other, other["id"])
    with pytest.raises(InputError, match="the median is seed 2 of darcy, which must be trained"):
        script.package_median(seeds[:1])
    script.package_median([open_run("trained")])  # rows of another recipe are replaced together
    (row,) = json.loads((results / "pretrained.json").read_text())["rows"]
    assert row["is_shipped"]
    before = files_in(library)
    for others in ([open_run("trained"), seeds[1]], [seeds[0], seeds[0]]):
        with pytest.raises(InputError, match="must differ in the seed and in no other setting"):
            script.package_median(others)
    assert files_in(library) == before


def test_a_shipped_model_is_measured_again(script, shipped, monkeypatch):
    monkeypatch.setattr(script, "PRETRAINED", shipped.parent)
    for name in ("pages", "draw_median", "write_pages"):
        monkeypatch.setattr(script, name, lambda *_: {})
    before = json.loads((shipped / "evaluation.json").read_text())
    (shipped / "evaluation.json").write_text("{}")
    monkeypatch.setattr("sys.argv", ["pretrained", "--evaluate", "--benchmarks", "darcy"])
    monkeypatch.setattr(script, "ROOT", shipped.parent.parent)
    monkeypatch.setattr(script, "PAGE", shipped.parent / "page.md")
    others = files_in(shipped)
    script.main()
    after = json.loads((shipped / "evaluation.json").read_text())
    assert {key: after[key] for key in ALL_ERRORS} == {key: before[key] for key in ALL_ERRORS}
    del others["evaluation.json"]
    assert others.items() <= files_in(shipped).items()


def test_the_seeds_are_trained_as_jobs_of_the_recipe(script, monkeypatch):
    asked = {}
    monkeypatch.setattr(Experiment, "train", lambda self, jobs: asked.update(jobs) or {})
    script.train_seeds(["darcy", "elasticity"], (0, 1, 2))
    assert list(asked) == [f"{b}-seed{s}" for s in (0, 1, 2) for b in ("darcy", "elasticity")]
    for name, config in asked.items():
        benchmark, seed = name.split("-seed")
        changes = {"train": {"seed": int(seed)}}
        assert config == build_settings(benchmark, "small", None, changes)


def test_nothing_is_written_into_the_library(shipped):
    from cato.cli.commands import Export
    from cato.viz.report import write_report

    before = files_in(shipped)
    results = Path("runs/pretrained/darcy")
    for given in ("darcy", shipped):
        shutil.rmtree(results, ignore_errors=True)
        cato.evaluate(given)
        assert (results / "evaluation.json").exists()
    Export(Path("darcy"), "pt2", json=True).run()
    write_report(open_run("darcy"))
    assert {"evaluation.json", "report.html", "model.pt2"} <= set(files_in(results))
    assert files_in(shipped) == before


def test_a_pretrained_model_is_not_trained_further(shipped):
    before = files_in(shipped)
    with pytest.raises(InputError, match=r"comes with cato.*`cato train darcy --scale smoke"):
        cato.resume("darcy")
    assert files_in(shipped) == before


@pytest.mark.parametrize("name", ["darcy", "airfoil"])
def test_predicting_for_a_file_gives_bands(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = open_run(name)
    problem = run.problem
    editor = editor_for(problem, run.config.scale)
    inputs, coords = editor.model_inputs(editor.first())  # the band is for inputs like these
    np.savez("in.npz", inputs=np.stack([inputs, inputs]), coords=np.stack([coords, coords]))
    predict_file(run, Path("in.npz"), Path("out.npz"))
    (vouch,) = run.checkpoints.folder.glob("*.json")
    band = load_band(run, json.loads(vouch.read_text())["state"]["step"])
    with np.load("out.npz") as out:
        assert out["outputs"].shape == (2, *problem.shape, problem.num_outputs)
        expected = band.half_width.numpy().reshape(*problem.shape, -1)
        np.testing.assert_array_equal(out["bands"], np.stack([expected, expected]))


# -- installed ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_wheel_holds_them_and_works(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(ROOT / "cato", source / "cato", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "from setuptools import build_meta; build_meta.build_wheel('..')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {f"cato/pretrained/{path}" for path in files_in(PRETRAINED)} <= set(
            archive.namelist()
        )
        archive.extractall(tmp_path / "installed")
    load = "import cato; cato.load('darcy'); print(cato.__file__)"
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", load],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "installed")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert loaded.stdout.strip() == str(tmp_path / "installed" / "cato" / "__init__.py")
