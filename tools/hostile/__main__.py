"""All campaigns, at most 40 minutes: `make hostile` writes a results file and docs/trust.md.

python -m tools.hostile                    # all of them
python -m tools.hostile kills load         # some; the results of the others are kept
python -m tools.hostile --trial            # seconds each; writes nothing
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from cato.progress import note
from tools.pages import Pages, render, table, write_pages
from tools.results import ROOT, Row, has_results, machine, read_results, stamped, update_rows

PAGE = ROOT / "docs" / "trust.md"
TRIAL_SECONDS = 5.0
BAD = ("wrong", "lost", "tracebacks", "crashes", "hangs", "broken", "leftovers")
"""Counts that must be 0."""


@dataclass(frozen=True)
class Campaign:
    """An attack that is repeated with random choices; see the docstring of its module."""

    title: str
    minutes: float
    tried: str = "tried"  # Name of the count of attacks.


CAMPAIGNS = {
    "kills": Campaign("Commands killed at random: the same command ends bit for bit alike", 8),
    "starts": Campaign("Two commands that start in one folder: one wins with its settings", 3),
    "corruptions": Campaign("Damaged, swapped and missing files of a run", 5),
    "mutated_files": Campaign("Damaged users' files of all formats", 7),
    "invocations": Campaign("Bad options and surroundings", 3),
    "numerics": Campaign("Data of any magnitude, offsets and NaN", 2),
    "http_fuzz": Campaign("Malformed HTTP requests", 2, "requests"),
    "load": Campaign("64 honest clients next to 64 that stall, break and lie", 9, "right"),
}


def main() -> int:
    """Run the campaigns; 1 if one of them found a bug."""
    parser = argparse.ArgumentParser(description="attack cato and count how it ends")
    parser.add_argument("names", nargs="*", metavar="CAMPAIGN", help=", ".join(CAMPAIGNS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trial", action="store_true", help="seconds each; writes nothing")
    given = parser.parse_args()
    if unknown := set(given.names) - set(CAMPAIGNS):
        parser.error(f"no campaign {sorted(unknown)[0]!r}; choose one of {', '.join(CAMPAIGNS)}")
    rows = []
    for name in given.names or CAMPAIGNS:
        seconds = TRIAL_SECONDS if given.trial else 60 * CAMPAIGNS[name].minutes
        note(f"{CAMPAIGNS[name].title}: {seconds / 60:.1f} minutes")
        counts = import_module(f"tools.hostile.{name}").campaign(seconds, given.seed)
        print(json.dumps({name: counts}), flush=True)
        row = {"campaign": name, "counts": counts, "passed": passed(counts)}
        rows.append(stamped(row, {"seconds": seconds, "seed": given.seed}))
        if not given.trial:
            update_rows("hostile", rows[-1:], "campaign", CAMPAIGNS)
    if not given.trial:
        write_pages(pages())
    return 0 if all(row["passed"] for row in rows) else 1


def passed(counts: Mapping[str, Any]) -> bool:
    """Whether a campaign found no bug."""
    return counts.get("passed", True) and not any(counts.get(name) for name in BAD)


def pages() -> Pages:
    """docs/trust.md; none before the first campaign."""
    if not has_results("hostile"):
        return {}
    rows = read_results("hostile")["rows"]
    header = ("campaign", "minutes", "tried", "correct", "refused in one line", "bugs")
    cells = [row_of(row) for row in rows]
    measured = {row["campaign"] for row in rows}
    load = next((row["counts"] for row in rows if row["campaign"] == "load"), None)
    text = render(
        "trust.md",
        table=table(header, cells),
        machine=machine(rows[0]),
        load=load,
        missing=[about.title for name, about in CAMPAIGNS.items() if name not in measured],
    )
    return {PAGE: text}


def row_of(row: Row) -> tuple[str, ...]:
    """A campaign in the table."""
    counts, about = row["counts"], CAMPAIGNS[row["campaign"]]
    bugs = {name: counts[name] for name in BAD if counts.get(name)}
    correct = counts.get("correct", counts.get("right", ""))
    return (
        about.title,
        f"{row['settings']['seconds'] / 60:.1f}",
        str(counts[about.tried]),
        str(correct),
        str(counts.get("one_line_errors", "")),
        ", ".join(f"{name} {number}" for name, number in bugs.items()) or "none",
    )


if __name__ == "__main__":
    sys.exit(main())
