"""What the paper claims, beside what our results files say of it.

Every claim is one line: the paper's number, ours, the setting, and a verdict that code chooses from
the number. A study that has not been run leaves its claims "not run".
"""

from collections.abc import Callable, Mapping
from typing import Any

from cato.errors import InputError
from reproduce.claims.accuracy import PAPER, accuracy, gallery_claims, table_1_claims
from reproduce.claims.cost import (
    PAPER_SPEED_UP,
    efficiency_claims,
    gpu_claims,
    scaling_claims,
)
from reproduce.claims.parts import ablation_claims, chart_claims
from reproduce.claims.theory import theory_claims
from reproduce.verdicts import NEEDS_GPU, NOT_RUN, Claim

FULL_SIZE = "`python -m reproduce compare --scale paper`"


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """All claims.

    Args:
        results: Contents of the results files by study: epochs, time, gallery, ablation, scaling,
            efficiency, chart, theory. Those that are missing have not been run.
    """
    sources: dict[str, Callable[[Any], list[Claim]]] = {
        "epochs": accuracy,
        "time": accuracy,
        "gallery": gallery_claims,
        "ablation": ablation_claims,
        "scaling": scaling_claims,
        "efficiency": efficiency_claims,
        "chart": chart_claims,
        "theory": theory_claims,
    }
    found = []
    for study, source in sources.items():
        if study not in results:
            found.append(Claim(f"what `{study}` studies", "", "", "", NOT_RUN))
            continue
        try:
            found += source(results[study])
        except KeyError as error:
            raise InputError(
                f"the results of {study} lack {error}: another version of cato wrote them; run "
                "the study again, which trains nothing that is there"
            ) from error
    return [*found, *_at_full_size(results)]


def _at_full_size(results: Mapping[str, Any]) -> list[Claim]:
    """The paper's own numbers, which trainings of its size show, and times those on a GPU."""
    found, full = results.get("epochs"), {"scale": "paper", "share": 1, "minutes": None}
    if found and full.items() <= found["settings"].items():
        return [*table_1_claims(found), *(gpu_claims(found) or [_gpu_speed()])]
    return [_table_1(), _gpu_speed()]


def _table_1() -> Claim:
    errors = [published.error for published in PAPER.values()]
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
        f"`paper` scale: {FULL_SIZE}; on a CPU see above",
        NEEDS_GPU,
    )
