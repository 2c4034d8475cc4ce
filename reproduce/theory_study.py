"""The paper's theory executed (Definition 1, Lemmas 1 and 2, Theorem 1) and its page.

The mathematics is in `reproduce.theory`: operators, Lemma 1's weights in the real module,
measures of error and the experiments.
"""

from pathlib import Path
from typing import Any

import numpy as np

from cato.files import write_json
from cato.runs.provenance import environment
from reproduce.figures.theory import draw_realisation, draw_stability, draw_theorem
from reproduce.outcomes import log_slope
from reproduce.pages import save_figure, save_page
from reproduce.theory import experiments


def theory(out: Path = Path("results/theory"), seed: int = 0) -> dict[str, Any]:
    """Carry out all experiments; write theory.json, theory.md and the figures.

    Args:
        out: Folder of the results.
        seed: Of operators, charts, features and fields.

    Returns:
        The contents of theory.json.
    """
    results = {
        "settings": {
            "seed": seed,
            "shape": list(experiments.SHAPE),
            "small_shape": list(experiments.SMALL_SHAPE),
            "radius": experiments.RADIUS,
            "operators": experiments.NUM_OPERATORS,
            "sharp_rank": experiments.SHARP_RANK,
            "theorem_width": experiments.THEOREM_WIDTH,
            "theorem_rank": experiments.THEOREM_RANK,
        },
        "environment": environment(),
        "products": experiments.product_errors(seed),
        "realisation": experiments.realisation(seed),
        "stability": experiments.stability(seed),
        "theorem": experiments.theorem(seed),
    }
    write_json(out / "theory.json", results)
    write_page(results, out)
    return results


def write_page(results: dict[str, Any], out: Path) -> None:
    """theory.md and its figures, from the results alone."""
    figures = {
        "realisation": draw_realisation(results["realisation"], results["products"]),
        "stability": draw_stability(results["stability"]),
        "theorem": draw_theorem(results["theorem"]),
    }
    for name, figure in figures.items():
        save_figure(figure, out / f"theory-{name}.png")
    lines = [
        *_setting(results["settings"]),
        *_realisation(results["realisation"], results["products"]),
        *_stability(results["stability"], results["settings"]),
        *_theorem(results["theorem"], results["settings"]),
    ]
    save_page(out, "theory", "The paper's theory, executed", lines)


def _setting(settings: dict[str, Any]) -> list[str]:
    height, width = settings["shape"]
    return [
        f"Operators T_ζ of Definition 1 on a bent mesh of {height} × {width} nodes; coefficients "
        "A sin(ω·ζ + φ) whose largest values and Lipschitz constants are exact; charts are the "
        f"model's own module with random weights; M = {settings['radius']:g}; double precision; "
        f"seed {settings['seed']}. Norms are plain Euclidean, as in the paper: that is why "
        "‖f‖ ≤ M gives |f_ij| ≤ M, which Lemma 1 uses. With a norm averaged over the nodes it "
        "would not.",
        "",
    ]


def _realisation(rows: list[dict[str, Any]], products: list[dict[str, float]]) -> list[str]:
    exceeded = sum(e > b for row in rows for e, b in zip(row["errors"], row["bounds"], strict=True))
    total = sum(len(row["errors"]) for row in rows)
    steps, errors = ([row[key] for row in products] for key in ("step", "error"))
    order = log_slope(steps, errors)
    lines = [
        "## Lemma 1: the construction in the real module",
        "",
        "One block, no layer norm, no local operator, zero queries and keys. Means of the channels "
        "U and V arrive in M and N to "
        f"{max(row['summary_error'] for row in rows):.0e} of their size; M, N and O start at "
        "exactly zero; Z = z is exact because GELU(t) − GELU(−t) = t. Every product takes four "
        f"hidden units, whatever the accuracy: its error falls as h^{order:.2f}, and is "
        f" {max(row['ratio'] for row in products):.6f} times its proven bound at most. What "
        "is left is the fit of the coefficients as functions of x by the lift's C hidden units.",
        "",
        "*Found*: the largest ‖N(f) − T_ζ f‖ by gradient ascent over ‖f‖ ≤ M, a lower estimate of "
        "the supremum. *Upper estimate*: from the errors of the lift's channels at the nodes. Both "
        f"are medians of {len(rows[0]['errors'])} operators. "
        + _verdict(exceeded, total, "networks", "the upper estimate"),
        "",
        "| R_ξ = R_η | C | found | upper estimate |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row['rank']} | {row['width']} | {np.median(row['errors']):.1e} "
        f"| {np.median(row['bounds']):.1e} |"
        for row in rows
    ]
    lines += [
        "",
        "| R_ξ = R_η | ε ~ C^−s over all widths, s | over the last two, s |",
        "|---|---|---|",
    ]
    for rank in dict.fromkeys(row["rank"] for row in rows):
        some = [row for row in rows if row["rank"] == rank]
        widths = [row["width"] for row in some]
        found = [float(np.median(row["errors"])) for row in some]
        orders = log_slope(widths, found), log_slope(widths[-2:], found[-2:])
        lines.append(f"| {rank} | {-orders[0]:.1f} | {-orders[1]:.1f} |")
    return [
        *lines,
        "",
        "![Error against width, and of a product against its step](theory-realisation.png)",
        "",
        "What the module changes in the proof: its heads run along both axes and share values, and "
        "a head has an even size. Head r carries U_r and V_r in two value coordinates, of which "
        "the row output reads the first and the column output the second; max(R_ξ, R_η) heads do "
        "for R_ξ row and R_η column heads.",
        "",
    ]


def _stability(stability: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    rows, sharp = stability["rows"], stability["sharp"]
    draws = sum(row["draws"] for row in rows)
    violations = sum(row["violations"] for row in rows)
    height, width = settings["small_shape"]
    lines = [
        "## Lemma 2: the constant of stability",
        "",
        f"{draws:,} random draws of ranks 0 to 3, coefficients, charts and displacements on "
        f"{height} × {width} nodes. The ratio of ‖T_ζ̂ f − T_ζ f‖ to C_chart δ ‖f‖, with δ as it "
        "came out, for the worst f (the largest singular value, so exact) and for a random f. "
        "*With averages*: the largest of the draws of ranks other than (0, 0); to reach 1 their "
        "coefficients would have to be large and steep at the same place. "
        + _verdict(violations, draws, "draws", "the bound"),
        "",
        "| what moves | δ, about | worst f: median | largest | with averages | random f: median |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['displacement']} | {row['delta']:g} | {row['worst_f'][2]:.2f} "
        f"| {row['worst_f'][4]:.4f} | {row['worst_with_averages']:.2f} | {row['random_f'][2]:.2f} |"
        for row in rows
    ]
    best = max(sharp, key=lambda row: row["ratio"])
    rank = settings["sharp_rank"]
    return [
        *lines,
        "",
        "![Change of the operator over its bound](theory-stability.png)",
        "",
        f"With every coefficient equal to ξ, R_ξ = R_η = {rank}, and all nodes moved from "
        f"ξ = 1 − δ to ξ = 1, the ratio is {best['ratio']:.4f} at δ = {best['delta']:g}; it is "
        f"1 − {2 * rank} δ / {4 * rank + 1} by hand. "
        + (
            "So C_chart cannot be replaced by a smaller constant in these norms."
            if best["ratio"] > 0.99
            else "So the example is not sharp at these δ."
        ),
        "",
    ]


def _theorem(theorem: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    rows = theorem["rows"]
    violations = sum(row["measured"] > sum(row["terms"]) for row in rows)
    lines = [
        "## Theorem 1: the three terms",
        "",
        f"G = T_ζ + R with a random R of norm ε_rk, R_ξ = R_η = {settings['theorem_rank']}, "
        f"C = {settings['theorem_width']}, C_chart = {theorem['chart_constant']:.1f}. The network "
        "is Lemma 1's for a chart ζ̂ with noise on its weights; ε_nn is the upper estimate above. "
        + _verdict(violations, len(rows), "cases", "the bound"),
        "",
        "| δ | ε_rk M | C_chart M δ | ε_nn | bound | found | found / bound |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        bound = sum(row["terms"])
        terms = " | ".join(f"{term:.1e}" for term in row["terms"])
        lines.append(
            f"| {row['delta']:.1e} | {terms} | {bound:.1e} | {row['measured']:.1e} "
            f"| {row['measured'] / bound:.2f} |"
        )
    effect = theorem["chart_effect"]
    remark = (
        "The construction does not look at the chart: with zero queries and keys the rotations by "
        "ζ turn zeros, and the lift computes a_r(Φ_chart(x)) by itself. Another chart in the "
        "finished network changed no output at all (difference exactly 0). So a network whose lift "
        "is fitted to the ideal ζ has the error of δ = 0 whatever chart it carries (dotted lines), "
        "and the term C_chart M δ can be avoided. The theorem is true, but it does not say that a "
        "learned chart helps: that would need a construction whose attention uses ζ. Nor does "
        "Definition 1 tell charts apart. Its averages run along mesh lines, and ζ enters through "
        "the coefficients a(ζ(x)) alone; for any other chart ζ′ that keeps the nodes apart the "
        "coefficients a∘ζ∘ζ′⁻¹, continued between the nodes, give the same operator with the same "
        "ranks. So ε_rk is the same for all such charts, plain coordinates among them; what "
        "depends on the chart is C_chart."
        if effect == 0
        else f"Another chart in the finished network changed its output by up to {effect:.1e}."
    )
    return [*lines, "", "![Error against displacement](theory-theorem.png)", "", remark]


def _verdict(violations: int, total: int, what: str, bound: str) -> str:
    if violations:
        return f"**{violations} of {total} {what} exceed {bound}: something is wrong.**"
    return f"None of {total:,} {what} exceeds {bound}."
