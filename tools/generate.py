"""Every generated page, card and table, written from the results files; measures nothing.

python -m tools.generate           # make generate
python -m tools.generate --check   # make check-generated: names the files that differ, code 1
"""

import argparse
import sys

from reproduce import pages as studies
from tools import (
    advice,
    benchmark_pages,
    cards,
    exports,
    fine_tuning,
    first_report,
    mesh_parallel,
    pretrained,
    readme,
    scale,
    speed_page,
    streaming,
    training_range,
    user_data,
)
from tools.hostile import __main__ as hostile
from tools.pages import Pages, outdated, write_pages
from tools.results import ROOT

MODULES = (
    *(advice, benchmark_pages, cards, exports, fine_tuning, first_report, hostile, mesh_parallel),
    *(pretrained, readme, scale, speed_page, streaming, studies, training_range, user_data),
)
"""Those of measurements that were not made yet have no pages."""


def pages() -> Pages:
    """Text of every generated file by path."""
    found: Pages = {}
    for module in MODULES:
        for path, text in module.pages().items():
            assert path not in found, f"{path} is generated twice"
            found[path] = text
    return found


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description="write generated pages from results files")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    if parser.parse_args().check:
        different = outdated(pages())
        for path in different:
            print(f"{path.relative_to(ROOT)} differs from its results; run `make generate`")
        return 1 if different else 0
    for path in write_pages(pages()):
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
