"""No attack takes more memory than it may: batches that unpack to much, frames that never become whole, what is remembered (I46, P12)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import SETTINGS
from tests.hostile.attacks import corpus, measure, settings_of
from tools.bench.brokers import free_port

MEMORY_BYTES_MAX = 64 << 20
ALLOWANCE_BYTES = 100 << 20
ATTACKS = (
    "Produce of 4 million records of a future time in a few kilobytes",
    "Produce of 4 million records in a few kilobytes to a compacted topic, 5 times",
    "600 connections that have sent 17 kB of a frame each, and an honest one that sends 100 kB in pieces",
    "1,000 connections that hold 105 kB of a frame each",
    "300 connections that ask for 10,000 small answers each and never read",
    "300 connections that ask for 10 answers of 2 MB each and never read",
    "100 connections of 20 fetches each that wait for 2,000 partitions",
    "OffsetCommit of 4 kB of metadata for 2,000 partitions in 80 groups",
    "TxnOffsetCommit of 4 kB of metadata for 2,000 partitions in 80 groups, never committed",
    "64 scrapes at once of 5,000 partitions, over and over, that are not read",
)


@pytest.mark.parametrize("name", ATTACKS)
def test_i46_memory_stays_within_its_bound(tmp_path: Path, name: str) -> None:
    """Of a broker that may use little memory for its clients."""
    attack, other_port = corpus()[name], free_port()
    broker = BrokerProcess(tmp_path, (*SETTINGS, *settings_of(attack, other_port), f"ottla.memory.max.bytes={MEMORY_BYTES_MAX}")).start()
    try:
        outcome = measure(broker.port, broker.pid, attack.run, other_port)
    finally:
        if broker.is_running:
            broker.stop()
    risen_bytes = outcome.rss_peak_bytes - outcome.rss_before_bytes
    assert risen_bytes <= MEMORY_BYTES_MAX + ALLOWANCE_BYTES, f"{risen_bytes >> 20} MiB more"
