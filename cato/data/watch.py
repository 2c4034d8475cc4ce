"""Files that must stay as they are while they are read bit by bit.

Inode, size and time of change are compared at every look, and one of some sampled places of the
content: a file that is rewritten in place with its time set back is noticed too. Of many files
those in use are compared, and some of the others in turn.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from cato.errors import InputError

NUM_PLACES, PLACE_BYTES = 16, 4096
FILES_AT_ONCE = 16

Stamp = tuple[int, int, int]


class Watch:
    """The state of some files at the time of the first look; `advice` ends the messages."""

    def __init__(self, paths: Sequence[Path], advice: str) -> None:
        self._paths, self._advice, self._looks = list(paths), advice, 0
        self._stamps = {path: self._stamp(path) for path in paths}
        self._places = [
            (path, self._stamps[path][1] * k // NUM_PLACES)
            for path in self._paths[:NUM_PLACES]
            for k in range(NUM_PLACES)
        ]
        self._digests = [self._digest(*place) for place in self._places]

    def require_same(self, used: Sequence[Path] = ()) -> None:
        """Raise if a file is not what it was; cheap enough for every read."""
        first = self._looks * FILES_AT_ONCE % max(1, len(self._paths))
        for path in {*used, *self._paths[first : first + FILES_AT_ONCE]}:
            if self._stamp(path) != self._stamps[path]:
                raise InputError(f"{path} has changed while it was used; {self._advice}")
        if self._places:
            number = self._looks % len(self._places)
            self._looks += 1
            path, offset = self._places[number]
            if self._digest(path, offset) != self._digests[number]:
                raise InputError(f"{path} has changed while it was used; {self._advice}")

    def _stamp(self, path: Path) -> Stamp:
        try:
            about = path.stat()
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{path} is gone ({reason}); {self._advice}") from None
        return about.st_ino, about.st_size, about.st_mtime_ns

    def _digest(self, path: Path, offset: int) -> bytes:
        try:
            with path.open("rb", buffering=0) as file:
                content = os.pread(file.fileno(), PLACE_BYTES, offset)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{path} cannot be read ({reason}); {self._advice}") from None
        return hashlib.sha256(content).digest()
