"""Limits and other settings of the service, in the groups of `cato serve --help`.

A client is a network address: an IPv4 address, or the first 64 bits of an IPv6 address, which is
what one subscriber gets.
"""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt, Le

from cato.config import Count, NonNegative, Positive

Bytes = Annotated[int, Gt(0), Le(2**62)]


@dataclass(frozen=True)
class Access:
    """Names and proxies that are trusted."""

    host_names: tuple[str, ...] = ()
    """Names of this service in Host headers, besides numbers, localhost, this machine, --host."""
    proxies: tuple[str, ...] = ()
    """Addresses of reverse proxies whose X-Forwarded-For header names the client."""


@dataclass(frozen=True)
class RequestLimits:
    """Limits on each request."""

    max_body_bytes: Bytes = 32 * 2**20
    """Maximum size of a request body in bytes, both compressed and uncompressed."""
    max_json_bytes: Bytes = 8 * 2**20
    """Maximum size of a JSON body in bytes; parsing one blocks all other requests."""
    max_response_bytes: Bytes = 128 * 2**20  # Maximum size of a response in bytes.
    max_samples: Count = 64  # Maximum number of samples per request.
    max_nodes: Count = 20_000
    """Maximum number of nodes per sample; the training mesh of a model is always allowed."""
    header_seconds: Positive = 10.0
    """Time limit for the header of a request to arrive, in seconds."""
    body_seconds: Positive = 30.0  # Time limit for the body of a request to arrive, in seconds.
    time_limit: Positive = 30.0
    """Time limit for a prediction in seconds, from the arrival of its body."""
    send_seconds: Positive = 30.0
    """Time in seconds after which a client that reads nothing of a response is disconnected."""
    idle_seconds: Positive = 5.0  # Time in seconds that a connection may wait for its next request.


@dataclass(frozen=True)
class TotalLimits:
    """Limits on all clients together; beyond them, requests get 503."""

    max_requests: Count = 256  # Maximum number of predictions in progress.
    max_connections: Count = 1000  # Maximum number of open connections.
    max_held_bytes: Bytes = 2**30
    """Maximum size of all bodies in memory, of requests and responses, in bytes."""


@dataclass(frozen=True)
class ClientLimits:
    """Limits on each client; beyond them, its requests get 429."""

    client_requests: Count = 128  # Maximum number of predictions of one client in progress.
    client_connections: Count = 256  # Maximum number of open connections of one client.
    client_held_bytes: Bytes = 256 * 2**20
    """Maximum size of all bodies of one client in memory, in bytes."""
    client_jobs: Count = 4  # Maximum number of solver jobs of one client, waiting and running.


@dataclass(frozen=True)
class SolverLimits:
    """The solvers of the explorer."""

    solver_processes: Count = 2  # Number of solver jobs that run at a time, each on one core.
    max_jobs: Count = 32  # Maximum number of jobs: waiting, running, and with a result to fetch.
    job_seconds: Positive = 300.0  # Time limit for a job in seconds.
    result_seconds: Positive = 300.0
    """Time in seconds for which a result is kept until it is fetched."""


@dataclass(frozen=True)
class Batching:
    """How predictions share forward passes."""

    max_batch: Count = 16  # Maximum number of samples per forward pass; 1 disables batching.
    batch_seconds: NonNegative = 0.005
    """How long a forward pass may wait for requests that are still being decoded, in seconds."""
    deterministic: bool = False
    """Make answers independent of other clients, bit for bit; slower: no batching, one thread."""


@dataclass(frozen=True)
class ServeSettings(Batching, SolverLimits, ClientLimits, TotalLimits, RequestLimits, Access):
    """All settings of the service."""
