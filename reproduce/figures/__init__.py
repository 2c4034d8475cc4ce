"""Figures of the studies."""

from pathlib import Path

from matplotlib.figure import Figure

from cato.files import atomic_write

DPI = 110
"""Resolution of the pictures."""


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure to a file; its folder is created if missing."""
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=DPI, format=path.suffix[1:])
