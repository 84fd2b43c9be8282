"""`ottla cluster info`: brokers and topics in one look, as `kcat -L` and `rpk cluster info` show them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ottla.cli.command import Command, no_arguments
from ottla.cli.options import connect, output_of
from ottla.cli.output import write
from ottla.cli.render.rows import Row, column, json_only


class BrokerRow(Row):
    """A broker."""

    id: int
    host: str
    port: int
    rack: str | None
    controller: bool


class TopicRow(Row):
    """A topic; a partition is leaderless, or out of sync because a replica is not in its ISR."""

    topic: str | None
    internal: bool = json_only()
    partitions: int
    replication_factor: int = column("REPLICATION")
    leaderless: int
    out_of_sync: int


def _info(args: argparse.Namespace) -> int:
    output = output_of(args)
    with connect(args) as cluster:
        answer = cluster.refresh(None)
        brokers = [
            BrokerRow(broker_id, address.host, address.port, cluster.racks.get(broker_id), broker_id == cluster.controller_id)
            for broker_id, address in sorted(cluster.brokers.items())
        ]
        cluster_id = cluster.cluster_id
    topics = [
        TopicRow(
            topic.name,
            topic.is_internal,
            len(topic.partitions),
            max((len(one.replica_nodes) for one in topic.partitions), default=0),
            sum(one.leader_id < 0 for one in topic.partitions),
            sum(len(one.isr_nodes) < len(one.replica_nodes) for one in topic.partitions),
        )
        for topic in sorted(answer.topics, key=lambda found: found.name or "")
    ]
    if output.is_structured:
        found: dict[str, Sequence[Row]] = {"brokers": brokers, "topics": topics}
        output.show_object({"cluster_id": cluster_id, **{name: [row.as_json() for row in rows] for name, rows in found.items()}})
        return 0
    if output.form == "table":
        write(f"cluster {cluster_id}\n\n")
        output.rows("brokers", BrokerRow, brokers)
        write("\n")
    output.rows("topics", TopicRow, topics)
    return 0


INFO = Command("Brokers and topics in one look.", no_arguments, _info, may_watch=True)
