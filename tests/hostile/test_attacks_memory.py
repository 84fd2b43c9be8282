"""No attack makes the broker or its workers use more memory than allowed (I46, P12). Quick attacks on memory are run in full, a part of
each other attack. The benchmark runs all in full and checks the same limits, with more memory for clients (`tools/bench/attacks.py`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import SETTINGS
from tests.hostile.attacks import MIB, Outcome, broken_bounds, corpus, measure, settings_of
from tools.bench.brokers import free_port

MEMORY_BYTES_MAX = 64 * MIB
PART = 0.1
SMALLER_PARTS = {"a fetch of 10 MB of names in each of 1,000 connections, which close, then 20 empty ones of the last session": 0.05}
"""Attacks that get larger in two ways at once, so that a tenth takes long. This part still exceeds the bounds of a session and of all."""
WHOLE = (
    "Produce of 4 million records of a future time in a few kilobytes",
    "Produce of 4 million records in a few kilobytes to a compacted topic, 5 times",
    "600 connections that have sent 17 kB of a frame each, and an honest one that sends 100 kB in pieces",
    "558 connections that drip a frame of 65 kB, and an honest one that sends 100 kB in pieces, of a broker that may use 64 MiB",
    "2,000 connections that hold 105 kB of a frame each",
    "6,000 connections that have sent one request with a client id of 32 kB",
    "300 connections that ask for 10,000 small answers each and never read",
    "300 connections that ask for 10 answers of 2 MB each and never read",
    "100 connections of 20 fetches each that wait for 2,000 partitions",
    "OffsetCommit of 4 kB of metadata for 2,000 partitions in 80 groups",
    "TxnOffsetCommit of 4 kB of metadata for 2,000 partitions in 80 groups, never committed",
    "64 scrapes at once of 5,000 partitions, over and over, that are not read",
    "64 idle connections to the HTTP port, and /healthz 200 times",
)
NIGHT = {
    "ListOffsets by time over 4 batches of 4 million records that lie about their time, twice",
    "6,000 connections that have sent one request with a client id of 32 kB",
    "300 connections that ask for 10,000 small answers each and never read",
    "OffsetCommit of 4 kB of metadata for 2,000 partitions in 80 groups",
    "OffsetFetch of 100 groups of 200 topics of 20 partitions, 5 times in one read",
    "a fetch of 10 MB of names in each of 1,000 connections, which close, then 20 empty ones of the last session",
    "64 scrapes at once of 5,000 partitions, over and over, that are not read",
    "ConsumerGroupHeartbeat and ShareGroupHeartbeat of 11,000 groups with 100 topics of 200 letters each",
    "15,000 logins that are refused, under a name of 32 kB each",
}
"""The most expensive attacks, 3 to 9 seconds of processor time each. Each has a cheaper relative in the corpus."""


def test_named_attacks_are_of_the_corpus() -> None:
    assert {*WHOLE, *SMALLER_PARTS, *NIGHT} <= set(corpus())


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.night) if name in NIGHT else name for name in corpus()])
def test_i46_memory_stays_within_its_bound(tmp_path: Path, name: str) -> None:
    """Attacks a broker that may use little memory for its clients."""
    attack, other_port = corpus()[name], free_port()
    settings = (*SETTINGS, f"ottla.memory.max.bytes={MEMORY_BYTES_MAX}", *settings_of(attack, other_port))
    broker = BrokerProcess(tmp_path, settings).start()
    try:
        part = 1.0 if name in WHOLE else SMALLER_PARTS.get(name, PART)
        outcome = measure(broker.port, broker.pid, attack.run, other_port, part)
    finally:
        if broker.is_running:
            broker.stop()
    assert not broken_bounds(outcome, MEMORY_BYTES_MAX)


@pytest.mark.parametrize(
    ("outcome", "broken"),
    [
        (Outcome(rss_before_bytes=50 * MIB, rss_peak_bytes=164 * MIB, workers_peak_bytes=256 * MIB), []),
        (Outcome(rss_before_bytes=50 * MIB, rss_peak_bytes=165 * MIB), ["the broker took 165 MiB, 164 may be"]),
        (Outcome(workers_peak_bytes=257 * MIB), ["its workers took 257 MiB, 256 may be"]),
    ],
)
def test_a_broken_bound_is_named(outcome: Outcome, broken: list[str]) -> None:
    assert broken_bounds(outcome, MEMORY_BYTES_MAX) == broken
