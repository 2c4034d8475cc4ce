"""The process behind `cato serve`: open a port, load models, serve, shut down gracefully."""

import errno
import importlib.util
import ipaddress
import signal
import socket
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.table import Table

from cato.errors import InputError
from cato.files import to_json
from cato.progress import console, note
from cato.serve.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from cato.serve.models import ServedModel

MAX_CONNECTIONS = 1000
GRACE_SECONDS = 5.0  # Time beyond the limit of a request before a shutdown is forced.
PACKAGES = ("fastapi", "prometheus_client", "uvicorn")


def serve(
    runs: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    open_page: bool = False,
    as_json: bool = False,
) -> None:
    """Serve models until Ctrl-C or SIGTERM; requests in progress are finished.

    The default host accepts connections from this machine only; port 0 is a free one. With
    `as_json`, URL and models are printed as one JSON object instead of a table.
    """
    missing = [name for name in PACKAGES if not importlib.util.find_spec(name)]
    if missing:
        raise InputError(
            f"serving needs {' and '.join(missing)}; install with: pip install 'cato-pde[serve]'"
        )
    from cato.serve.app import create_app
    from cato.serve.models import load_models

    settings = ServeSettings()
    with listening_socket(host, port) as listener:
        models = load_models(runs)
        url = url_of(listener)
        app = create_app(models, settings)
        _restrict_hosts(app, host, listener.getsockname()[0])
        _announce(models, url, as_json)
        if open_page:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        run_app(app, listener, settings)
    note("stopped")


def run_app(app: "FastAPI", listener: socket.socket, settings: ServeSettings) -> None:
    """Run an application on an open port until a signal stops it."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=int(settings.time_limit + GRACE_SECONDS),
    )
    with _ignore_repeated_signals():
        uvicorn.Server(config).run(sockets=[listener])


def listening_socket(host: str, port: int) -> socket.socket:
    """An open port; opened before models are loaded so that errors are reported at once."""
    if not 0 <= port < 2**16:
        raise InputError(f"the port must be from 0 to 65535; got {port}")
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise InputError(f"--host {host}: {error.strerror}; use 127.0.0.1") from None
    try:
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        remedies = {
            errno.EADDRINUSE: "another program uses it; stop that program, or choose another "
            "--port (0 for a free one)",
            errno.EACCES: "ports below 1024 are reserved; choose another --port",
            errno.EADDRNOTAVAIL: "this machine does not have that address; use 127.0.0.1",
        }
        remedy = remedies.get(error.errno or 0, error.strerror)
        raise InputError(f"cannot listen on {host} port {port}: {remedy}") from None


def url_of(listener: socket.socket) -> str:
    """The URL to open in a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _restrict_hosts(app: "FastAPI", host: str, address: str) -> None:
    """Check the Host header of a local service; warn if the service is open to the network."""
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    if ipaddress.ip_address(address).is_loopback:
        # Otherwise a web page whose name resolves to 127.0.0.1 could use it through a browser.
        names = ["localhost", "127.0.0.1", "[::1]", host]
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=names)
    else:
        note(
            f"NOTE: at {host}, anybody who can reach this machine over the network can use these "
            f"models; there is no password. To serve this machine only: --host 127.0.0.1"
        )


def _announce(models: "dict[str, ServedModel]", url: str, as_json: bool) -> None:
    from cato.serve.routes import ModelList

    if as_json:
        listed = ModelList.model_validate({"models": [m.describe() for m in models.values()]})
        print(to_json({"url": url, **listed.model_dump()}), flush=True)
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
def _ignore_repeated_signals() -> Iterator[None]:
    """Ignore the signals that uvicorn raises again after its graceful shutdown."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: None) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
