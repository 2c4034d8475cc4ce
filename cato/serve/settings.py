"""Limits of the service."""

from dataclasses import dataclass

from cato.config import Count, NonNegative, Positive


@dataclass(frozen=True)
class ServeSettings:
    """Limits on requests, and how requests are batched."""

    max_body_bytes: Count = 32 * 2**20
    """Maximum size of a request body, both compressed and uncompressed."""
    max_samples: Count = 64  # Maximum number of samples per request.
    max_nodes: Count = 20_000
    """Maximum number of nodes per sample; the training mesh of a model is always allowed."""
    max_requests: Count = 64  # Maximum number of predictions in progress; further requests get 503.
    time_limit: Positive = 30.0  # Time limit per request in seconds.
    max_batch: Count = 16  # Maximum number of samples per forward pass; 1 disables batching.
    batch_seconds: NonNegative = 0.005
    """How long a forward pass may wait for requests that are still being read."""
