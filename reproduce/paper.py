"""What the paper reports on each benchmark."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PaperNumbers:
    """What the paper reports on one benchmark."""

    error: float  # Relative L2 error of CATO (Table 1).
    rival: str  # The model with the lowest error after CATO.
    rival_error: float  # Its error.
    is_highlighted: bool = False  # Whether the paper names this gain among its largest.
    # Parameters, in millions, of models in their public settings.
    public_millions: Mapping[str, float] = field(default_factory=dict)


PAPER = {
    "darcy": PaperNumbers(
        0.0042, "saot", 0.0049, public_millions={"transolver": 2.83, "saot": 2.69}
    ),
    "navier_stokes": PaperNumbers(
        0.0319,
        "saot",
        0.0675,
        is_highlighted=True,
        public_millions={"transolver": 11.23, "saot": 9.65},
    ),
    "airfoil": PaperNumbers(
        0.0041, "saot", 0.0049, public_millions={"transolver": 2.81, "saot": 6.06}
    ),
    "pipe": PaperNumbers(
        0.0038, "gnot", 0.0047, public_millions={"transolver": 3.07, "saot": 5.42}
    ),
    "plasticity": PaperNumbers(
        0.0005,
        "saot",
        0.0009,
        is_highlighted=True,
        public_millions={"transolver": 2.84, "saot": 5.49},
    ),
    "elasticity": PaperNumbers(
        0.0070, "transolver", 0.0081, public_millions={"transolver": 0.71, "saot": 2.04}
    ),
}
