"""The cache of finished samples during generation, one file each, so that a kill loses none.

A file is a SHA-256 followed by a NumPy archive. The checksum also covers the settings, split and
index: a file that is truncated, changed, renamed or from another generation is not intact.
"""

import hashlib
import io
import shutil
from pathlib import Path

import numpy as np

from cato.benchmarks.contract import Sample
from cato.data.sampling import AcceptedSample
from cato.data.spec import DataSpec
from cato.errors import InputError
from cato.files import atomic_write, write_json

_DIGEST_SIZE = hashlib.sha256().digest_size


class SampleCache:
    """A folder of finished samples next to the file `target` they will be written to."""

    def __init__(self, target: Path, spec: DataSpec) -> None:
        self.spec = spec
        self.folder = target.with_name(f"{target.stem}-{spec.key}.parts")

    def start(self) -> None:
        """Create the folder, with a manifest for people who wonder what it is."""
        write_json(self.folder / "manifest.json", self.spec.identity)

    def write(self, split: str, index: int, accepted: AcceptedSample) -> None:
        archive, names = io.BytesIO(), np.array(list(accepted.sample.diagnostics), np.str_)
        np.savez(archive, allow_pickle=False, names=names, **accepted.arrays())
        payload = archive.getvalue()
        with atomic_write(self.path(split, index)) as temporary:
            temporary.write_bytes(self._digest(split, index, payload) + payload)

    def read(self, split: str, index: int) -> AcceptedSample:
        payload = self._payload(split, index)
        if payload is None:
            raise InputError(f"{self.path(split, index)} was damaged; run the same command again")
        with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
            names, values = arrays["names"].tolist(), arrays["diagnostics"].tolist()
            diagnostics = dict(zip(names, values, strict=True))
            sample = Sample(arrays["inputs"], arrays["targets"], arrays.get("coords"), diagnostics)
            return AcceptedSample(sample, int(arrays["attempts"]))

    def is_intact(self, split: str, index: int) -> bool:
        return self._payload(split, index) is not None

    def remove(self) -> None:
        """Remove the folder; another process may be doing the same."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, split: str, index: int) -> Path:
        return self.folder / f"{split}-{index:05d}.part"

    def _payload(self, split: str, index: int) -> bytes | None:
        """The archive; None if it is missing, unreadable or its checksum differs."""
        try:
            content = self.path(split, index).read_bytes()
        except OSError:
            return None
        digest, payload = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
        return payload if digest == self._digest(split, index, payload) else None

    def _digest(self, split: str, index: int, payload: bytes) -> bytes:
        # "v2", because caches of version 0.1 have other arrays.
        return hashlib.sha256(f"v2 {self.spec.key} {split} {index}\n".encode() + payload).digest()
