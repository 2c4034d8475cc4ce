"""The limits of the service."""

from dataclasses import dataclass

from cato.config import Count, NonNegative, Positive


@dataclass(frozen=True)
class ServeSettings:
    """How much a client may ask for, and how requests are brought together."""

    max_body_bytes: Count = 32 * 2**20
    """Largest body of a request, packed and unpacked."""
    max_samples: Count = 64
    """Most samples in a request."""
    max_nodes: Count = 20_000
    """Most nodes of a sample; the mesh a model was trained on is always allowed."""
    max_requests: Count = 64
    """Most predictions under way at a time; whoever comes then is asked to come back (503)."""
    time_limit: Positive = 30.0
    """Seconds after which a request is given up."""
    max_batch: Count = 16
    """Most samples in a forward of the model; 1 switches batching off."""
    batch_seconds: NonNegative = 0.005
    """How long a forward may wait for requests that are already being read."""
