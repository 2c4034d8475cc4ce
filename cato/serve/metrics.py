"""Prometheus metrics of one application, in its own registry."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SAMPLES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters, histograms and gauges; safe to update from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.requests = Counter(
            "cato_requests",
            "Requests by method, route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.request_seconds = histogram(
            "cato_request_seconds",
            "Seconds until the response is complete.",
            ["route"],
            buckets=SECONDS,
        )
        self.batch_samples = histogram(
            "cato_batch_samples", "Samples per forward pass.", buckets=SAMPLES
        )
        self.queue_length = gauge("cato_queue_length", "Predictions in the queue.")
        self.requests_under_way = gauge("cato_requests_under_way", "Predictions in progress.")
        self.held_bytes = gauge("cato_held_bytes", "Bytes of bodies in memory.")
        self.models = gauge("cato_models", "Models served.")
