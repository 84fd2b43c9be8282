"""The segments of a log, and the way from an entry of an index to its batch."""

from __future__ import annotations

import re

from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin
from ottla.testing.broker import Broker
from tests.console.world import Visitor, console_of, write


def test_an_entry_of_an_index_leads_to_its_batch(visitor: Visitor, cluster: Cluster) -> None:
    admin.create_topic(cluster, "segmented", partitions=1, configs={"segment.bytes": "1048576", "index.interval.bytes": "1"})
    for number in range(12):
        write(cluster, "segmented", b"%d" % number + b"x" * 200_000)
    segments = visitor.json("/api/v1/topics/segmented/log")["segments"]
    assert len(segments) > 1 and [one["state"] for one in segments] == ["sealed"] * (len(segments) - 1) + ["active"]
    assert segments[0]["end"] == int(segments[1]["segment"])
    path = "/topics/segmented/log/index?partition=0&segment=0"
    entries = visitor.json(f"/api/v1{path}")["offsets"]
    page = visitor.get(path)
    assert len(entries) > 1 and f">{entries[-1]['offset']}</a>" in page
    (batch,) = set(re.findall(rf'href="([^"]+)">{entries[-1]["offset"]}</a>', page))
    assert "base_offset" in visitor.get(batch.replace("&amp;", "&"))
    assert "has no segment 7" in visitor.get("/topics/segmented/log/index?partition=0&segment=7", 404)


def test_other_brokers_do_not_describe_their_segments() -> None:
    with Broker(topics=["plain:1"], settings={"ottla.advertise.level": "4.3"}) as broker, console_of(broker.bootstrap_server) as visitor:
        assert "kafka-dump-log --files DIRECTORY/plain-0/*.log" in visitor.get("/topics/plain/log")
        assert "Only Ottla&#39;s brokers describe" in visitor.get("/topics/plain/log/index?partition=0&segment=0", 404)
