"""The speed of CATO is measured by the same code on CPUs and GPUs."""

import pytest
import torch

from tools import speed, speed_page


@pytest.fixture
def small(monkeypatch):
    """Small matmuls; the measurement leaves its number of threads behind."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(speed, "MATMUL", 64)
    monkeypatch.setattr(speed, "SIZES", (8,))
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("small")
def test_a_step_and_its_parts_are_timed():
    """At the size of `--trial`, with the device as a parameter."""
    row = speed.measure(16, "cpu", repeats=1)
    assert row["gflop_per_sample"] > 0
    assert row["step_seconds"] > row["forward_seconds"] > 0


@pytest.mark.usefixtures("small")
def test_a_step_that_recomputes_its_blocks_takes_less_memory():
    row = speed.compare_remat(16, "cpu", repeats=1)
    assert row["memory_share"] < 0.45


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_without_a_gpu_there_is_one_line(capsys):
    with pytest.raises(SystemExit) as stop:
        speed.require_device("cuda")
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no GPU" in said


def test_rows_of_a_gpu_complete_the_page(monkeypatch):
    """As if the results of this machine were those of a GPU."""
    names, original = [], speed_page.read_results

    def read(name):
        names.append(name)
        return original(name.removesuffix("_gpu"))

    (before,) = speed_page.pages().values()
    assert "`make bench-gpu`" in before
    monkeypatch.setattr(speed_page, "has_results", lambda name: True)
    monkeypatch.setattr(speed_page, "read_results", read)
    (page,) = speed_page.pages().values()
    assert {"speed_gpu", "recipes_gpu"} <= set(names)
    section = page.split("## On a GPU")[1].split("## Models")[0]
    assert "Nothing was measured" not in section
    assert section.count("\n| --- ") == 3  # CATO by mesh, recomputed blocks, recipes
    assert "there was no GPU" not in page
