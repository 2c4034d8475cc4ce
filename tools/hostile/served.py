"""A server process for the campaigns, watched from outside."""

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Self

COMMAND = [sys.executable, "-c", "from cato.cli import main; main()", "serve", "--json"]


class ServerProcess:
    """`cato serve` with some options, on a free port; use it in a `with` block."""

    def __init__(self, *options: str) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*COMMAND, "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server did not start: {self.errors()}"
        self.url = json.loads(line)["url"]
        self.port = int(self.url.rpartition(":")[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)

    def errors(self) -> str:
        """Standard error so far."""
        self._errors.flush()
        self._errors.seek(0)
        return self._errors.read()

    def megabytes(self) -> float:
        """Memory that the process uses."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match
        return int(match[1]) / 1024

    def cpu_seconds(self) -> float:
        """CPU time that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def statuses(self) -> Counter[int]:
        """Number of responses by status, of all clients."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        text = opener.open(f"{self.url}/metrics", timeout=30).read().decode()
        found: Counter[int] = Counter()
        for status, count in re.findall(r'cato_requests_total\{.*status="(\d+)"\} (\S+)', text):
            found[int(status)] += int(float(count))
        return found
