"""The paper's claims, each with our measurement.

Every claim has the paper's number, ours, the setting, and a verdict that code chooses from the
numbers. An experiment without results leaves its claims "not run".
"""

from collections.abc import Callable, Mapping
from typing import Any

from reproduce.claims.accuracy import (
    accuracy,
    gallery_claims,
    paper_contradictions,
    paper_numbers,
    table_1_claims,
)
from reproduce.claims.cost import (
    PAPER_SPEED_UP,
    efficiency_claims,
    gpu_claims,
    scaling_claims,
)
from reproduce.claims.parts import ablation_claims, chart_claims, cloud_claims, flux_head_claims
from reproduce.claims.theory import theory_claims
from reproduce.experiment import definitions
from reproduce.results import Row
from reproduce.verdicts import NEEDS_GPU, NOT_RUN, Claim

FULL_SIZE = "`python -m reproduce epochs --scale paper --share 1`"
SOURCES: dict[str, Callable[[Any], list[Claim]]] = {
    "epochs": accuracy,
    "time": accuracy,
    "gallery": gallery_claims,
    "ablation": ablation_claims,
    "ablation-cloud": cloud_claims,
    "flux-head": flux_head_claims,
    "scaling": scaling_claims,
    "efficiency": efficiency_claims,
    "chart": chart_claims,
    "theory": theory_claims,
}
"""The claims that follow from the results of each experiment."""


def claims(results: Mapping[str, Row]) -> list[Claim]:
    """All claims, from the contents of the results files by experiment."""
    found = []
    for name, source in SOURCES.items():
        if name in results:
            found += source(results[name])
        else:
            title = definitions()["experiments"][name]["title"]
            found.append(Claim(f"all claims of `{name}`: {title}", "", "", "", NOT_RUN))
    return [*found, *paper_contradictions(), *_at_full_size(results)]


def _at_full_size(results: Mapping[str, Row]) -> list[Claim]:
    """The paper's numbers themselves, which need trainings of its size, and times on a GPU."""
    found, full = results.get("epochs"), {"scale": "paper", "share": 1, "minutes": None}
    if found and full.items() <= found["settings"].items():
        return [*table_1_claims(found), *(gpu_claims(found) or [_gpu_speed()])]
    return [_table_1(), _gpu_speed()]


def _table_1() -> Claim:
    errors = [number.error for number in paper_numbers().values()]
    return Claim(
        "the errors of Table 1 themselves",
        f"CATO {min(errors):.2%} to {max(errors):.2%}",
        "",
        f"`paper` scale, 500 epochs: {FULL_SIZE}",
        NEEDS_GPU,
    )


def _gpu_speed() -> Claim:
    return Claim(
        "time per epoch and training time on a GPU",
        f"up to {PAPER_SPEED_UP} times faster, on an A100",
        "",
        f"`paper` scale: {FULL_SIZE}; for CPUs see the claims on training speed",
        NEEDS_GPU,
    )
