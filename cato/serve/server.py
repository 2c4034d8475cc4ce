"""The process behind `cato serve`: open a port, load models, serve, shut down gracefully."""

import errno
import importlib.util
import ipaddress
import os
import signal
import socket
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from cato.errors import InputError
from cato.files import to_json
from cato.progress import console, note
from cato.serve.settings import ServeSettings

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from cato.serve.models import ServedModel

GRACE_SECONDS = 5.0  # Time beyond the limit of a request before a shutdown is forced.
OTHER_FILES = 200  # Open files of this process besides its connections.
PACKAGES = ("fastapi", "prometheus_client", "uvicorn")
TOKEN_VARIABLE = "CATO_TOKEN"
MIN_TOKEN = 16  # Characters; a shorter token could be guessed.


def serve(
    runs: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    settings: ServeSettings | None = None,
    token: str = "",
    open_page: bool = False,
    as_json: bool = False,
) -> None:
    """Serve models until Ctrl-C or SIGTERM; requests in progress are finished.

    The default host accepts connections from this machine only; port 0 is a free one. With a
    `token`, clients must send it. With `as_json`, URL and models are printed as one JSON object
    instead of a table.
    """
    missing = [name for name in PACKAGES if not importlib.util.find_spec(name)]
    if missing:
        raise InputError(
            f"serving needs {' and '.join(missing)}; install with: pip install 'cato-pde[serve]'"
        )
    from cato.serve.app import create_app
    from cato.serve.models import load_models

    settings = settings or ServeSettings()
    settings = replace(settings, host_names=(*settings.host_names, host))
    for proxy in settings.proxies:
        _require_address(proxy)
    with listening_socket(host, port) as listener:
        _allow_open_files(settings.max_connections + OTHER_FILES)
        models = load_models(runs)
        url = url_of(listener)
        app = create_app(models, settings, token)
        if not token:
            _warn_if_open(host, listener.getsockname()[0])
        _announce(models, url, as_json)
        if open_page:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        run_app(app, listener, settings)
    note("stopped")


def run_app(app: "FastAPI", listener: socket.socket, settings: ServeSettings) -> None:
    """Run an application on an open port until a signal stops it."""
    with _ignore_repeated_signals():
        create_server(app, settings).run(sockets=[listener])


def create_server(app: "FastAPI", settings: ServeSettings) -> "uvicorn.Server":
    """The HTTP server of an application, with the limits on connections."""
    import uvicorn

    from cato.serve.clients import Quota, client_of
    from cato.serve.connections import LimitedProtocol

    open_connections = Quota(
        settings.max_connections,
        settings.client_connections,
        "connections",
        exempt=[client_of(proxy) for proxy in settings.proxies],  # they carry many clients
    )
    protocol: Any = partial(LimitedProtocol, open_connections=open_connections, settings=settings)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        log_level="error",  # a warning for every broken request would fill any disk
        access_log=False,
        server_header=False,
        # uvicorn's default is to believe this header if it comes from this machine.
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
        timeout_keep_alive=ceil(settings.idle_seconds),
        timeout_graceful_shutdown=int(settings.time_limit + GRACE_SECONDS),
    )
    return uvicorn.Server(config)


def read_token(path: Path | None) -> str:
    """The token from a file or the environment; empty without either.

    It is not an option, because every user of a machine can see the options of its processes.
    """
    if path is not None:
        origin, text = str(path), path.read_text(encoding="utf-8", errors="replace")
    else:
        # Removed, so that no child process inherits it.
        origin, text = TOKEN_VARIABLE, os.environ.pop(TOKEN_VARIABLE, "")
        if not text:
            return ""
    token = text.strip()
    if len(token) < MIN_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        raise InputError(
            f"{origin}: a token is one line of at least {MIN_TOKEN} letters, digits and signs "
            f"without spaces; make one with: python -c 'import secrets; "
            f"print(secrets.token_urlsafe())'"
        )
    return token


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


def _require_address(proxy: str) -> None:
    try:
        ipaddress.ip_address(proxy)
    except ValueError:
        raise InputError(
            f"--proxies needs numeric addresses, such as 10.0.0.2; got {proxy!r}"
        ) from None


def _warn_if_open(host: str, address: str) -> None:
    """Warn if the service is open to the network."""
    if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        note(
            f"NOTE: at {host}, anyone who can reach this machine over the network can use these "
            f"models; there is no token. To require one: --token-file FILE. To serve this machine "
            f"only: --host 127.0.0.1"
        )


def _allow_open_files(number: int) -> None:
    """Raise this process's limit of open files: a connection is one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= number:
        return
    if hard != resource.RLIM_INFINITY and hard < number:
        raise InputError(
            f"--max-connections needs {number} open files, but this process may have {hard}; "
            f"choose at most {hard - OTHER_FILES}, or raise the limit: ulimit -n {number}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))


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
