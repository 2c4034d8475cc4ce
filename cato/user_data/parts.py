"""Data sets on disk: one file, a file that lists others, or a folder that is one data set.

Lists of files (`.pvd`, `.vtm`) name them in the attribute `file`; they are searched for it as text,
because parsing happens in the child process only.
"""

import re
from pathlib import Path

LISTS = (".pvd", ".vtm")
CASE = ".foam"  # An OpenFOAM case is a folder; ParaView opens it by an empty file of this ending.
STORE = ".zarr"
_REFERENCE = re.compile(rb"""file\s*=\s*["']([^"']+)["']""")


def format_of(path: Path) -> str:
    """The suffix that stands for a path's format."""
    is_case = (path / "system" / "controlDict").is_file()
    return CASE if is_case else path.suffix.lower()


def is_entry(path: Path) -> bool:
    """Whether a path is one data set: a file, a Zarr store, or an OpenFOAM case."""
    return path.is_file() or (path.is_dir() and format_of(path) in (STORE, CASE))


def parts_of(path: Path) -> list[Path]:
    """All files of a data set, the path itself first if it is a file."""
    folder = path.parent if path.suffix.lower() == CASE else path
    if folder.is_dir():
        return sorted(file for file in folder.rglob("*") if file.is_file())
    parts = [path]
    for part in parts:  # which grows by what each list names
        if part.suffix.lower() in LISTS:
            names = _REFERENCE.findall(part.read_bytes())
            files = (part.parent / name.decode(errors="replace") for name in names)
            parts += [file for file in dict.fromkeys(files) if file.is_file() and file not in parts]
    return parts
