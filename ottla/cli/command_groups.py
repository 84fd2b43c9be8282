"""The table of command groups: every word that may follow `ottla`, and the module that has its commands.

A module is imported only when one of its commands is called, completed or described, so `ottla --help` imports none.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

from ottla.cli.command import Command


class Group(NamedTuple):
    """A word after `ottla`: the module that has its COMMAND or COMMANDS, and one sentence."""

    module: str
    help: str
    section: str


GROUPS: dict[str, Group] = {
    "start": Group("broker.start", "Run a broker until Ctrl-C.", "Servers"),
    "dev": Group("broker.dev", "Run a broker whose data is removed at its end.", "Servers"),
    "stop": Group("broker.stop", "Stop the broker of a data directory.", "Servers"),
    "status": Group("broker.status", "Does a broker run in a data directory, and does it answer?", "Servers"),
    "reset": Group("broker.reset", "Remove all data of a stopped broker.", "Servers"),
    "snapshot": Group("broker.snapshot", "Copy a broker's data as of one moment, while it serves.", "Servers"),
    "restore": Group("broker.restore", "Make a data directory of a snapshot.", "Servers"),
    "service": Group("broker.service", "The systemd unit of a broker.", "Servers"),
    "topic": Group("topics.topic", "Topics: list, describe, create, alter, delete.", "Topics and records"),
    "produce": Group("records.produce", "Write records from standard input or a file.", "Topics and records"),
    "consume": Group("records.consume", "Read records and print them.", "Topics and records"),
    "offsets": Group("records.offsets", "Offsets of each partition: the end, the start, or at a time.", "Topics and records"),
    "records": Group("records.records", "Delete records.", "Topics and records"),
    "log": Group("inspect.log", "Show and check the files of a log, offline.", "Topics and records"),
    "logdirs": Group("cluster.logdirs", "Log directories of the brokers: sizes and free space.", "Topics and records"),
    "group": Group("groups.group", "Consumer groups: list, describe, lag, reset offsets.", "Groups"),
    "share-group": Group("groups.share_group", "Share groups: list, describe, reset offsets, delete.", "Groups"),
    "txn": Group("transactions.txn", "Transactions: list, describe, find hanging ones, abort.", "Transactions"),
    "config": Group("cluster.config", "Settings of topics, brokers and groups, quotas; check a file.", "Settings and access"),
    "acl": Group("access.acl", "Access rules (ACLs): list, add, remove.", "Settings and access"),
    "security": Group("access.security", "Show what a client with these settings can do; make certificates to try.", "Settings and access"),
    "user": Group("cluster.user", "SCRAM users: who may log in with a password.", "Settings and access"),
    "token": Group("access.token", "Delegation tokens: logins as somebody else, for a while.", "Settings and access"),
    "cluster": Group("cluster.cluster", "Brokers, health, versions.", "Cluster"),
    "partitions": Group("cluster.partitions", "Move replicas, choose leaders.", "Cluster"),
    "features": Group("cluster.features", "Feature levels.", "Cluster"),
    "bench": Group("bench.bench", "Measure producing, consuming and end-to-end latency.", "Measuring"),
    "top": Group("top.top", "A live view: topics, groups and their lag, transactions, requests.", "Measuring"),
    "metrics": Group("inspect.metrics", "One scrape of a broker's metrics.", "Measuring"),
    "check": Group("check.check", "Check any Kafka-compatible broker: the promises of exactly-once.", "Measuring"),
    "pipeline": Group("pipeline.pipeline", "Exactly-once Spark pipelines: run, status, verify.", "Pipelines"),
    "doctor": Group("check.doctor", "Is this machine fit for a broker, and can clients reach it?", "Ours only"),
    "wire": Group("inspect.wire", "Explain a frame of the protocol, in hex or from a packet capture.", "Ours only"),
    "shims": Group("kafka_tools.shims", "Kafka's tools by their own names: kafka-topics and so on.", "This program"),
    "completion": Group("completion", "Let the shell complete commands, topics and groups.", "This program"),
    "profile": Group("profile", "Named connections.", "This program"),
}

ABSENT: dict[str, str] = {
    "console": "the console",
}
"""Commands that a later version will have, each with the name of the missing part."""


def load_commands(name: str) -> Command | dict[str, Command]:
    """Imports a group's module: the commands of a group such as `topic` by their verbs, or the one command of a word such as `produce`."""
    module = importlib.import_module(f"ottla.cli.{GROUPS[name].module}")
    commands: dict[str, Command] | None = getattr(module, "COMMANDS", None)
    if commands is None:
        command: Command = module.COMMAND
        return command
    return commands
