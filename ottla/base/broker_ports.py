"""All ports of a broker (`ports.py`) in one value, and the clock that decides when things expire."""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.immutable import immutable
from ottla.base.ports import Clock, Disk, MakeTokenSource, MetadataStore, Network, Peers, Random, ReadDocument, Threads, Timers

TIME_VARIABLE = "OTTLA_TIME"
"""Environment variable of a broker whose `Ages` the test fixture moves (`adapters/movable_time.py`)."""


class Ages(NamedTuple):
    """The clock and timers that decide when records, group members, transactions, offsets, producers, logins, tokens and quotas expire.
    They are the broker's own clock and timers, unless a test moves them (`adapters/movable_time.py`). Retries, pauses and time limits of
    requests always use the broker's own clock and timers."""

    clock: Clock
    timers: Timers


@immutable(kw_only=True)
class Ports:
    """All ports of a broker."""

    clock: Clock
    timers: Timers
    ages: Ages
    random: Random
    disk: Disk
    threads: Threads
    network: Network
    store: MetadataStore
    peers: Peers | None = None
    """None: connections over `network` (`server/peers.py`)."""
    read_document: ReadDocument | None = None
    """Required if a setting has the URL of a document."""
    make_token_source: MakeTokenSource | None = None
    """Required if brokers log in with tokens."""
