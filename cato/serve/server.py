"""The process behind `cato serve`: a port, models, and an orderly end."""

import errno
import importlib.util
import ipaddress
import json
import signal
import socket
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.table import Table

from cato.errors import InputError
from cato.progress import console, note
from cato.serve.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from cato.serve.models import ServedModel

MAX_CONNECTIONS = 1000
GRACE_SECONDS = 5.0
"""Beyond the time limit of a request, before an end is no longer graceful."""


def serve(
    runs: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    open_page: bool = False,
    as_json: bool = False,
) -> None:
    """Serve models until Ctrl-C or SIGTERM; requests that are under way are finished.

    Args:
        runs: Run folders, or NAME=RUN.
        host: Address to listen at; only this machine can reach the default.
        port: Port, or 0 for a free one.
        open_page: Show the page in a browser.
        as_json: Print address and models as one JSON object instead of a table.
    """
    require_installed()
    from cato.serve.app import create_app
    from cato.serve.models import load_models

    settings = ServeSettings()
    with listening_socket(host, port) as listener:
        models = load_models(runs)
        url = url_of(listener)
        app = create_app(models, settings)
        _guard_hosts(app, host)
        _announce(models, url, as_json)
        if open_page:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        run_app(app, listener, settings)
    note("stopped")


def require_installed() -> None:
    """FastAPI and uvicorn are optional."""
    missing = [name for name in ("fastapi", "uvicorn") if not importlib.util.find_spec(name)]
    if missing:
        raise InputError(
            f"serving needs {' and '.join(missing)}; install with: pip install 'cato[serve]'"
        )


def run_app(app: "FastAPI", listener: socket.socket, settings: ServeSettings) -> None:
    """Run an application at an open port until a signal ends it."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=int(settings.time_limit + GRACE_SECONDS),
    )
    with _quiet_signals():
        uvicorn.Server(config).run(sockets=[listener])


def listening_socket(host: str, port: int) -> socket.socket:
    """An open port, taken before models are loaded so that a mistake is told at once."""
    if not 0 <= port < 2**16:
        raise InputError(f"a port is a number from 0 to 65535; got {port}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"--host {host}: {error.strerror}; use 127.0.0.1") from None
    try:
        # A port of a server that has just ended may be taken, one of a running server may not.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        remedies = {
            errno.EADDRINUSE: "another program uses it; stop that, or take another --port "
            "(0 for any that is free)",
            errno.EACCES: "ports below 1024 are the system's; take another --port",
            errno.EADDRNOTAVAIL: "this machine does not have that address; use 127.0.0.1",
        }
        remedy = remedies.get(error.errno or 0, error.strerror)
        raise InputError(f"cannot listen at {host} port {port}: {remedy}") from None
    return listener


def url_of(listener: socket.socket) -> str:
    """The address to type into a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _guard_hosts(app: "FastAPI", host: str) -> None:
    """Keep a service of this machine to this machine, or say that it is open to others."""
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    if _is_loopback(host):
        # Else a web page whose name resolves to 127.0.0.1 could use it through the user's browser.
        names = ["localhost", "127.0.0.1", "[::1]", host]
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=names)
    else:
        note(
            f"NOTE: at {host}, anybody who can reach this machine over the network can use these "
            f"models; there is no password. For this machine only: --host 127.0.0.1"
        )


def _announce(models: "dict[str, ServedModel]", url: str, as_json: bool) -> None:
    """Say what is served and where."""
    if as_json:
        summaries: list[dict[str, Any]] = [model.summary() for model in models.values()]
        print(json.dumps({"url": url, "models": summaries}), flush=True)
        return
    table = Table("model", "problem", "mesh", "inputs", "outputs", "ms per sample")
    for model in models.values():
        problem = model.problem
        table.add_row(
            model.name,
            problem.name,
            f"{problem.geometry} {' × '.join(map(str, problem.shape))}",
            ", ".join(problem.inputs) or "the mesh",
            ", ".join(problem.outputs),
            f"{1000 * model.about['seconds_per_sample']:.1f}",
        )
    console.print(table)
    note(f"serving at {url} (API: {url}/docs); stop with Ctrl-C")


@contextmanager
def _quiet_signals() -> Iterator[None]:
    """Ignore the signals that uvicorn, after its orderly end, sends to the process once more."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: None) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
