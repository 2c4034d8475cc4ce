"""Provenance of a result: the code, the libraries, the machine and the date that produced it."""

from datetime import UTC, datetime
from typing import Any

from cato import __version__
from cato.runs.provenance import commit, environment


def provenance() -> dict[str, Any]:
    """What a result may depend on, apart from its settings and data.

    Returns:
        `commit` (see `commit`), `cato` (version), `hardware` (processor, cores, threads, gpu and
        system), `python`, `torch` and `date` (UTC, ISO 8601).
    """
    found = environment()
    versions = {key: found.pop(key) for key in ("python", "torch")}
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return {"commit": commit(), "cato": __version__, "hardware": found, **versions, "date": date}
