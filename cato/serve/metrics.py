"""Counters and histograms in the text format of Prometheus."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SAMPLES = (1, 2, 4, 8, 16, 32, 64)

Labels = tuple[tuple[str, str], ...]


class Histogram:
    """How many observations were at most each of some bounds, how many in all, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: Labels = ()) -> Iterator[str]:
        """Its samples; buckets are cumulative."""
        running = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            running += count
            yield f"{name}_bucket{_braces((*labels, ('le', str(bound))))} {running}"
        yield f"{name}_sum{_braces(labels)} {self.total:.9g}"
        yield f"{name}_count{_braces(labels)} {running}"


class Metrics:
    """What the service counts; may be told from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[Labels] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._batches = Histogram(SAMPLES)
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        labels = (("method", method), ("route", route), ("status", str(status)))
        with self._lock:
            self._requests[labels] += 1
            self._seconds.setdefault(route, Histogram(SECONDS)).observe(seconds)

    def observe_batch(self, num_samples: int) -> None:
        """Count one forward of a model."""
        with self._lock:
            self._batches.observe(num_samples)

    def gauge(self, name: str, help: str, read: Callable[[], float]) -> None:
        """Add a value that is read whenever somebody asks."""
        self._gauges[name] = help, read

    def text(self) -> str:
        """All of it, as Prometheus reads it."""
        with self._lock:
            return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("cato_requests_total", "counter", "Requests by route and status.")
        for labels, count in sorted(self._requests.items()):
            yield f"cato_requests_total{_braces(labels)} {count}"
        yield from _head("cato_request_seconds", "histogram", "Time to the end of the answer.")
        for route, histogram in sorted(self._seconds.items()):
            yield from histogram.lines("cato_request_seconds", (("route", route),))
        yield from _head("cato_batch_samples", "histogram", "Samples per forward of a model.")
        yield from self._batches.lines("cato_batch_samples")
        for name, (help, read) in self._gauges.items():
            yield from _head(name, "gauge", help)
            yield f"{name} {read():g}"


def _head(name: str, kind: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {kind}"


def _braces(labels: Labels) -> str:
    """Labels; none of ours holds a character that would have to be escaped."""
    inside = ",".join(f'{name}="{value}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""
