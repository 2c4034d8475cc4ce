"""All campaigns, at most 40 minutes: `make hostile` writes a results file and docs/trust.md.

python -m tools.hostile                    # all of them
python -m tools.hostile kills load         # some; the results of the others are kept
python -m tools.hostile mutated_files --minutes 60 --most 20000
python -m tools.hostile --trial            # seconds each; writes nothing
"""

import argparse
import json
import sys
import time
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
    minutes: float  # Time limit,
    most: int | None = None  # and the most attacks.
    tried: str = "tried"  # Name of the count of attacks.


CAMPAIGNS = {
    "kills": Campaign("Commands killed at random: the same command ends bit for bit alike", 8, 100),
    "faults": Campaign("System calls that fail: full, broken and read-only disks", 2, 100),
    "starts": Campaign("Two commands that start in one folder: one wins with its settings", 2, 100),
    "crowds": Campaign("Commands of all kinds on one run at once", 2, 100),
    "corruptions": Campaign("Damaged, swapped and missing files of a run", 4, 600),
    "mutated_files": Campaign("Damaged users' files of all formats", 4, 20_000),
    "invocations": Campaign("Bad options and surroundings", 3, 600),
    "numerics": Campaign("Data of any magnitude, offsets and NaN", 1, 1000),
    "http_fuzz": Campaign("Malformed HTTP requests", 1, 5000, "requests"),
    "load": Campaign("64 honest clients next to 64 that stall, break and lie", 10, None, "right"),
}


def main() -> int:
    """Run the campaigns; 1 if one of them found a bug."""
    parser = argparse.ArgumentParser(description="attack cato and count how it ends")
    parser.add_argument("names", nargs="*", metavar="CAMPAIGN", help=", ".join(CAMPAIGNS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="time limit of each, instead of its own")
    parser.add_argument("--most", type=int, help="most attacks of each, instead of its own")
    parser.add_argument("--trial", action="store_true", help="seconds each; writes nothing")
    given = parser.parse_args()
    if unknown := set(given.names) - set(CAMPAIGNS):
        parser.error(f"no campaign {sorted(unknown)[0]!r}; choose one of {', '.join(CAMPAIGNS)}")
    rows = []
    for name in given.names or CAMPAIGNS:
        about = CAMPAIGNS[name]
        seconds = TRIAL_SECONDS if given.trial else 60 * (given.minutes or about.minutes)
        note(f"{about.title}: at most {seconds / 60:.1f} minutes")
        began = time.monotonic()
        campaign = import_module(f"tools.hostile.{name}").campaign
        counts = campaign(seconds, given.seed, given.most or about.most)
        print(json.dumps({name: counts}), flush=True)
        row = {"campaign": name, "counts": counts, "passed": passed(counts)}
        took = round(time.monotonic() - began)
        rows.append(stamped(row, {"seconds": took, "seed": given.seed}))
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
    counts = {row["campaign"]: row["counts"] for row in rows}
    text = render(
        "trust.md",
        table=table(header, cells),
        machine=machine(rows[0]),
        **{name: counts.get(name) for name in ("kills", "mutated_files", "load")},
        missing=[about.title for name, about in CAMPAIGNS.items() if name not in counts],
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
