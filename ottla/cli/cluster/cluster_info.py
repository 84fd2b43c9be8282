"""`ottla cluster info`: brokers and topics in one look, as `kcat -L` and `rpk cluster info` show them."""

from __future__ import annotations

import argparse

from ottla.cli.command import Command, no_arguments
from ottla.cli.options import connect, output_of
from ottla.cli.output import write

BROKER_COLUMNS = (("ID", "id"), ("HOST", "host"), ("PORT", "port"), ("RACK", "rack"), ("CONTROLLER", "controller"))
TOPIC_COLUMNS = (
    ("TOPIC", "topic"),
    ("PARTITIONS", "partitions"),
    ("REPLICATION", "replication_factor"),
    ("LEADERLESS", "leaderless"),
    ("OUT-OF-SYNC", "out_of_sync"),
)


def _info(args: argparse.Namespace) -> int:
    output = output_of(args)
    with connect(args) as cluster:
        answer = cluster.refresh(None)
        brokers = [
            {
                "id": broker_id, "host": address.host, "port": address.port, "rack": cluster.racks.get(broker_id),
                "controller": broker_id == cluster.controller_id,
            }
            for broker_id, address in sorted(cluster.brokers.items())
        ]  # fmt: skip
        cluster_id = cluster.cluster_id
    topics = [
        {
            "topic": topic.name,
            "internal": topic.is_internal,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(one.replica_nodes) for one in topic.partitions), default=0),
            "leaderless": sum(one.leader_id < 0 for one in topic.partitions),
            "out_of_sync": sum(len(one.isr_nodes) < len(one.replica_nodes) for one in topic.partitions),
        }
        for topic in sorted(answer.topics, key=lambda found: found.name or "")
    ]
    if output.is_structured:
        output.show_object({"cluster_id": cluster_id, "brokers": brokers, "topics": topics})
        return 0
    if output.form == "table":
        write(f"cluster {cluster_id}\n\n")
        output.show("brokers", brokers, BROKER_COLUMNS)
        write("\n")
    output.show("topics", topics, TOPIC_COLUMNS)
    return 0


INFO = Command("Brokers and topics in one look.", no_arguments, _info, may_watch=True)
