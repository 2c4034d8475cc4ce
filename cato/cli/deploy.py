"""Commands that take a trained model out into the world."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from tyro.conf import Positional


@dataclass
class Serve:
    """Serve trained models over HTTP, to this machine unless --host says otherwise."""

    runs: Annotated[Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN")] = ()
    """Run folders, or NAME=RUN."""
    host: str = "127.0.0.1"
    """Address to listen at."""
    port: int = 8000
    """Port; 0 for any that is free."""
    open: bool = False
    """Show the page in a browser."""
    json: bool = False
    """Print address and models as one JSON object."""

    def run(self) -> None:
        """Serve until Ctrl-C."""
        from cato.serve.server import serve

        serve(self.runs, self.host, self.port, open_page=self.open, as_json=self.json)
