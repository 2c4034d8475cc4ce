"""Prometheus metrics of one application, in a registry of its own."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SAMPLES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters, histograms and gauges; safe to update from any thread."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "cato_requests",
            "Requests by method, route and status.",
            ["method", "route", "status"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "cato_request_seconds",
            "Seconds until the response is complete.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self.batch_samples = Histogram(
            "cato_batch_samples", "Samples per forward pass.", buckets=SAMPLES, registry=registry
        )
        self.queue_length = Gauge(
            "cato_queue_length", "Predictions in the queue.", registry=registry
        )
        self.requests_under_way = Gauge(
            "cato_requests_under_way", "Predictions in progress.", registry=registry
        )
        self.models = Gauge("cato_models", "Models served.", registry=registry)
