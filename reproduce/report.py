"""The results of all studies on one page: each claim of the paper, our number and a verdict."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from cato.benchmarks import get_benchmark
from cato.errors import InputError
from cato.files import atomic_write, read_json
from cato.runs.settings import recipe
from cato.viz.document import (
    Block,
    Code,
    Heading,
    Paragraph,
    Picture,
    TableBlock,
    to_html,
    to_markdown,
)
from reproduce.claims import claims
from reproduce.compare import overview
from reproduce.outcomes import by_benchmark
from reproduce.verdicts import MEANINGS, Claim

STUDIES = {
    "epochs": ("compare", "Models with equal epochs", "make study-epochs"),
    "time": ("compare", "Models in equal time", "make study-time"),
    "lr-sweep": ("lr-sweep", "Learning rates", "make study-lr-sweep"),
    "ablation-defaults": ("ablation", "Open choices", "make study-ablation-defaults"),
    "ablation-heads-rope": (
        "ablation",
        "Open choices with more seeds",
        "make study-ablation-heads-rope",
    ),
    "ablation-ns-plasticity": (
        "ablation",
        "Remedies where CATO is not first",
        "make study-ablation-ns-plasticity",
    ),
    "ablation": ("ablation", "Parts left out", "make study-ablation"),
    "scaling": ("scaling", "Scaling", "make study-scaling"),
    "efficiency": ("efficiency", "Efficiency", "make study-efficiency"),
    "chart": ("chart", "The learned chart", "make study-chart"),
    "theory": ("theory", "Theory", "make study-theory"),
    "gallery": ("gallery", "Pictures", "make study-gallery"),
}
"""Folder of the results: name of the files in it, title, and the command that fills it."""
IMAGE = re.compile(r"!\[(.*?)\]\((.*?)\)")
"""Caption and file of a picture on a study's page."""
OURS_AGAINST_PAPER = {
    ("rotary scale", "1, as in the paper"): "rotary scale 1",
    ("optimizer", "AdamW 1e-3"): "AdamW, rate 1e-3",
    ("optimizer", "AdamW 3e-3"): "AdamW, rate 3e-3",
    ("loss", "gradients in raw units"): "gradients in raw units",
}
"""Answers of the ablation that are the paper's, in words."""


def report(results: Path, out: Path) -> dict[str, Any]:
    """Write results.md and results.html into `out` from what the studies left in `results`.

    Args:
        results: Folder with a folder for each study.
        out: Where the pages go.

    Returns:
        The claims and how many there are of each verdict.
    """
    found = {
        study: read_json(results / study / f"{name}.json", f"the results of {study}")
        for study, (name, _, _) in STUDIES.items()
        if (results / study / f"{name}.json").exists()
    }
    if not found:
        raise InputError(
            f"{results} holds no results; run a study first, such as `make study-time`"
        )
    stated = claims(found)
    blocks = [*_summary(stated, found), *_details(found, results)]
    note = "written by `python -m reproduce report` from the studies' results; do not edit"
    with atomic_write(out / "results.md") as temporary:
        temporary.write_text(to_markdown(blocks, out, note))
    with atomic_write(out / "results.html") as temporary:
        temporary.write_text(to_html(blocks))
    return {
        "claims": [vars(claim) for claim in stated],
        "verdicts": dict(Counter(claim.verdict for claim in stated)),
    }


def _summary(stated: list[Claim], found: dict[str, Any]) -> list[Block]:
    """The claims in one table, what its words mean, and what of CATO here is ours."""
    counts = Counter(claim.verdict for claim in stated)
    total = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    machines = dict.fromkeys(map(_machine, found.values()))
    return [
        Heading("The paper's evidence, measured again", 1),
        Paragraph(
            f"{len(stated)} claims of the paper: {total}. Everything here was measured on "
            f"{' and on '.join(machines)}. Scale `small` is the same physics on coarser meshes, "
            "with minutes of training. Errors are relative L2 on physical values of the test "
            "split, which chose nothing, or of the validation split where it says so. An error is "
            "called lower than another where it is so by more than both vary over the seeds. It is "
            "too early to tell where fewer than half of the rivals have learnt more than the mean "
            "of the training solutions, unless one of them is clearly ahead of CATO. The paper's "
            "numbers are those of full-size trainings on a GPU and are given for orientation. The "
            "same commands with `--scale paper` are the full reproduction."
        ),
        TableBlock(
            ("claim", "paper", "here", "setting", "verdict"),
            [
                (claim.text, claim.paper, claim.ours, claim.setting, f"**{claim.verdict}**")
                for claim in stated
            ],
        ),
        TableBlock(
            ("verdict", "means"),
            [(f"**{word}**", MEANINGS[word]) for word in MEANINGS if word in counts],
        ),
        *(_ours(found["ablation"]) if "ablation" in found else []),
    ]


def _ours(ablation: dict[str, Any]) -> list[Block]:
    """Where the recipes leave the paper's, and what that is worth."""
    scale = ablation["settings"]["scale"]
    ours = recipe("darcy", scale, "cato")
    lines = [
        (
            get_benchmark(row["benchmark"]).title,
            words,
            f"{row['validation'] / rows[0]['validation'] - 1:+.1%}",
        )
        for rows in by_benchmark(ablation["rows"]).values()
        for row in rows
        for words in [OURS_AGAINST_PAPER.get((row["question"], row["answer"]))]
        if words
    ]
    return [
        Heading("What is ours"),
        Paragraph(
            "CATO is not trained here as the paper writes it. At every scale its rotary "
            f"frequencies have a scale of {ours.model.rotary_scale:g} where the paper's formula "
            "has 1, and gradients in the loss are measured in units of their training mean square; "
            f"at `{scale}` the optimiser is {ours.train.optimizer.capitalize()} for all models, "
            f"and CATO has {ours.model.depth} blocks and {ours.model.heads} heads where the paper "
            "has 8. What the paper's choice changes in the validation error, against ours:"
        ),
        TableBlock(("benchmark", "as in the paper", "change of the error"), lines),
        Paragraph(
            "Attention of CATO runs on CPUs in loops compiled for it, the other models in "
            "PyTorch's operations; that counts in times and in equal time, and not in equal epochs."
        ),
    ]


def _machine(results: dict[str, Any]) -> str:
    used = results["environment"]
    gpu = f"with {used['gpu']}" if used.get("gpu") else "without a GPU"
    return f"{used['cores']} cores of {used['processor']} {gpu}"


def _details(found: dict[str, Any], results: Path) -> list[Block]:
    """For each study its pictures, its page, what it cost and how to run it again."""
    blocks: list[Block] = []
    minutes: dict[str, float] = {}  # by training: some studies share theirs
    for study, (name, title, command) in STUDIES.items():
        blocks.append(Heading(title))
        if study not in found:
            blocks += [Paragraph("Not run yet."), Code(command)]
            continue
        trained = found[study].get("minutes", {})
        minutes |= trained
        hours = sum(trained.values()) / 60
        cost = f" {len(trained)} trainings, {hours:.1f} hours." if trained else ""
        page = results / study / f"{name}.md"
        blocks.append(
            Paragraph(f"All numbers: `{page.as_posix()}` and `{name}.json` beside it.{cost}")
        )
        if name == "compare":
            blocks.append(overview(found[study]["rows"]))
        written = page.read_text() if page.exists() else ""
        blocks += [
            Picture(page.parent / image, caption) for caption, image in IMAGE.findall(written)
        ]
        blocks.append(Code(command))
    blocks += [
        Heading("Cost"),
        Paragraph(
            f"{len(minutes)} trainings of one thread each, {sum(minutes.values()) / 60:.1f} hours "
            "in all, a core for each; `make study` runs what is missing."
        ),
    ]
    return blocks
