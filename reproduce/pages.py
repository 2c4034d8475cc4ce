"""Pages and pictures that the studies leave beside their results files."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from cato.files import atomic_write
from cato.viz.fields import DPI


def save_page(out: Path, study: str, title: str, lines: Sequence[str]) -> None:
    """STUDY.md, which says what wrote it."""
    note = f"<!-- written by `python -m reproduce {study}` from {study}.json; do not edit -->"
    with atomic_write(out / f"{study}.md") as temporary:
        temporary.write_text("\n".join([f"# {title}", "", note, "", *lines, ""]))


def save_figure(figure: Figure, path: Path) -> None:
    """A picture as a file, in a folder that need not be there."""
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=DPI, format=path.suffix[1:])
