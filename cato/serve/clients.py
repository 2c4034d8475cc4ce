"""Who a client is, and what one client and all of them together may hold."""

import ipaddress
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from fastapi import HTTPException
from starlette.types import Scope

IPV6_BITS = 64  # A subscriber has a whole network of this prefix, and could use any address of it.


def client_of(address: str) -> str:
    """The client that an address belongs to."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a proxy may send anything; in process there is no address
        return address[:80]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, IPV6_BITS), strict=False))


def client_of_scope(scope: Scope) -> str:
    """The client of a request."""
    return client_of((scope.get("client") or ("",))[0])


class Quota:
    """What clients may hold at a time: a limit on all together and one on each.

    Args:
        total: Maximum for all clients together.
        each: Maximum for one client.
        unit: What is held, for messages.
        exempt: Clients without a limit of their own.
    """

    def __init__(self, total: int, each: int, unit: str, exempt: Collection[str] = ()) -> None:
        self.total, self.each, self.unit = total, each, unit
        self.exempt = frozenset(exempt)
        self.held = 0
        self._held_by: Counter[str] = Counter()

    def refusal(self, client: str, amount: int = 1) -> HTTPException | None:
        """Why a client cannot take more, if so."""
        for status, held, limit, whose in (
            (503, self.held, self.total, "in total"),
            (429, self._held_by[client], self.each, "per client"),
        ):
            if held + amount > limit and not (status == 429 and client in self.exempt):
                reason = f"{self.unit} are limited to {limit} {whose} at a time; try again later"
                return HTTPException(status, reason, {"Retry-After": "1"})
        return None

    def take(self, client: str, amount: int = 1) -> None:
        """Count what a client takes; raises `HTTPException` if that is too much."""
        if (refusal := self.refusal(client, amount)) is not None:
            raise refusal
        self.held += amount
        self._held_by[client] += amount

    def release(self, client: str, amount: int = 1) -> None:
        """Count what a client gives back."""
        self.held -= amount
        self._held_by[client] -= amount
        if not self._held_by[client]:
            del self._held_by[client]  # there may be any number of clients

    @contextmanager
    def holding(self, client: str) -> Iterator[None]:
        """Hold one for the time of the block."""
        self.take(client)
        try:
            yield
        finally:
            self.release(client)
