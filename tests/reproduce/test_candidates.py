"""Candidates for the block of CATO: what they start from, and what they see."""

import pytest
import torch

from cato.benchmarks import get_benchmark
from cato.models.cato.grid import Cato, CatoConfig
from cato.runs.settings import run_config
from reproduce.candidates import Candidate, CandidateConfig, FilteredOperator, metric_terms
from reproduce.experiment import load

SMALL = {"width": 16, "depth": 2, "heads": 2, "kernel": 3, "variant": "ours"}


def nodes_of(problem):
    coords = torch.rand(2, problem.num_nodes, problem.dimension)
    features = torch.rand(2, problem.num_nodes, problem.num_inputs)
    return coords, features, torch.rand(2) if problem.has_time else None


@pytest.mark.parametrize(
    ("structure", "benchmark"), [("filters", "darcy"), ("modulated", "plasticity")]
)
def test_candidates_that_start_at_zero_start_as_cato(structure, benchmark):
    problem = get_benchmark(benchmark).problem("smoke")
    candidate = Candidate(CandidateConfig(**SMALL, structure=structure), problem)
    cato = Cato(CatoConfig(**SMALL), problem)
    names = {
        name.replace(".norm.weight", ".weight").replace(".norm.bias", ".bias"): value
        for name, value in candidate.state_dict().items()
    }
    cato.load_state_dict({name: names[name] for name in cato.state_dict()})
    coords, features, time = nodes_of(problem)
    expected = cato(coords, features, time=time)
    torch.testing.assert_close(candidate(coords, features, time=time).values, expected.values)


@pytest.mark.parametrize("structure", ["gate", "sequential", "gated mlp", "metric"])
def test_candidates_are_other_functions(structure):
    problem = get_benchmark("darcy").problem("smoke")
    candidate = Candidate(CandidateConfig(**SMALL, structure=structure), problem)
    coords, features, _ = nodes_of(problem)
    candidate(coords, features).values.square().mean().backward()
    unused = [n for n, p in candidate.named_parameters() if p.grad is None]
    assert all(name.startswith("flux_head") for name in unused)
    sizes = {name: value.shape for name, value in candidate.state_dict().items()}
    cato = Cato(CatoConfig(**SMALL), problem).state_dict()
    assert sizes != {name: value.shape for name, value in cato.items()}


def test_a_filter_is_a_convolution_along_the_whole_line():
    operator = FilteredOperator(3, 3, (True,))
    torch.nn.init.normal_(operator.spectra[0])
    impulse = torch.zeros(1, 20, 3)
    impulse[:, 0] = 1
    kernel = operator.filtered(impulse, 0, True)[0]
    h = torch.randn(1, 20, 3)
    index = (torch.arange(20)[:, None] - torch.arange(20)) % 20
    dense = torch.einsum("ijc,jc->ic", kernel[index], h[0])
    torch.testing.assert_close(operator.filtered(h, 0, True)[0], dense, atol=1e-5, rtol=1e-5)


def test_without_a_period_the_ends_of_a_filter_do_not_meet():
    operator = FilteredOperator(2, 3, (False,))
    torch.nn.init.normal_(operator.spectra[0])
    h = torch.zeros(1, 16, 2)
    h[:, 3] = 1
    moved = torch.zeros_like(h)
    moved[:, 10] = 1
    one, other = (operator.filtered(x, 0, False)[0] for x in (h, moved))
    torch.testing.assert_close(one[:9], other[7:], atol=1e-6, rtol=1e-5)


def test_metric_terms_of_a_scaled_mesh():
    i, j = torch.meshgrid(torch.arange(5.0), torch.arange(7.0), indexing="ij")
    mesh = torch.stack((2 * i + 0.3 * j, j + 0.1 * i * j), -1).flatten(0, 1)[None]
    one, three = (metric_terms(s * mesh, (5, 7), (False, False)) for s in (1, 3))
    torch.testing.assert_close(one[..., :4], three[..., :4])
    torch.testing.assert_close(three[..., 4], one[..., 4] + 2 * torch.log(torch.tensor(3.0)))


def test_a_candidate_has_the_recipe_of_cato():
    experiment = load("recipe-screen")
    _, base = experiment.one_change("darcy", {}, 0)
    _, gated = experiment.one_change("darcy", {"model": {"structure": "gate"}}, 0)
    values = gated.to_dict()
    assert values["model"].pop("structure") == "gate"
    assert values | {"model_name": "cato"} == base.to_dict()
    assert run_config(gated.to_dict(), "test") == gated
