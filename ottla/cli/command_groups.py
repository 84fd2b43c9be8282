"""The table of command groups: every word that may follow `ottla`, and the modules with its commands.

Modules are imported when a command of their group is called, completed or described. `ottla --help` therefore imports none.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import NamedTuple

from ottla.cli.command import COMMANDS, YES, Command


class Group(NamedTuple):
    """A word after `ottla`: the modules with its commands in the order of the help, a sentence, and its section in `ottla --help`."""

    modules: str
    help: str
    section: str


GROUPS: dict[str, Group] = {
    "start": Group("broker.start", "Run a broker until Ctrl-C.", "Servers"),
    "dev": Group("broker.dev", "Run a broker whose data is removed at its end.", "Servers"),
    "stop": Group("broker.stop", "Stop the broker of a data directory.", "Servers"),
    "status": Group("broker.status", "Does a broker run in a data directory, and does it answer?", "Servers"),
    "reset": Group("broker.reset", "Remove all data of a stopped broker.", "Servers"),
    "snapshot": Group("broker.snapshot", "Copy a broker's data as of one moment, while it serves.", "Servers"),
    "restore": Group("broker.snapshot", "Create a data directory from a snapshot.", "Servers"),
    "clone": Group("broker.clone", "Copy topics of any Kafka to a data directory, with the same offsets.", "Servers"),
    "mirror": Group("broker.mirror", "Mirror topics of any Kafka into a running cluster, with the same offsets.", "Servers"),
    "service": Group("broker.service", "The systemd unit of a broker.", "Servers"),
    "topic": Group("topics.topic topics.changes topics.records", "Topics: list, describe, create, alter, delete.", "Topics and records"),
    "produce": Group("records.produce", "Write records from standard input or a file.", "Topics and records"),
    "consume": Group("records.consume", "Read records and print them.", "Topics and records"),
    "sql": Group("records.sql", "Ask about topics with SQL (DuckDB).", "Topics and records"),
    "offsets": Group("records.offsets", "Offsets of each partition: the end, the start, or at a time.", "Topics and records"),
    "records": Group("records.records", "Delete records.", "Topics and records"),
    "log": Group("inspect.log inspect.log_scrub", "Show and check the files of a log, offline.", "Topics and records"),
    "logdirs": Group("cluster.logdirs", "Log directories of the brokers: sizes and free space.", "Topics and records"),
    "group": Group("groups.group", "Consumer groups: list, describe, lag, reset offsets.", "Groups"),
    "share-group": Group("groups.share_group", "Share groups: list, describe, reset offsets, delete.", "Groups"),
    "streams-group": Group("groups.streams_group", "Streams groups: list, describe, reset offsets, delete.", "Groups"),
    "txn": Group("transactions.txn", "Transactions: list, describe, find hanging ones, abort.", "Transactions"),
    "config": Group("cluster.config", "Settings of topics, brokers and groups, quotas; check a file.", "Settings and access"),
    "acl": Group("access.acl", "Access rules (ACLs): list, add, remove.", "Settings and access"),
    "security": Group(
        "access.security access.cert", "Show what a client with these settings can do; make certificates to try.", "Settings and access"
    ),
    "user": Group("cluster.user", "SCRAM users: who may log in with a password.", "Settings and access"),
    "token": Group("access.token", "Delegation tokens: logins as somebody else, for a while.", "Settings and access"),
    "cluster": Group("cluster.cluster", "Brokers, health, versions.", "Cluster"),
    "partitions": Group(
        "cluster.partitions cluster.partition_moves cluster.partition_elections", "Move replicas, choose leaders.", "Cluster"
    ),
    "features": Group("cluster.features", "Feature levels.", "Cluster"),
    "bench": Group("bench.producer bench.consumer", "Measure producing, consuming and end-to-end latency.", "Measuring"),
    "top": Group("top.top", "A live view: topics, groups and their lag, transactions, requests, clients.", "Measuring"),
    "client-metrics": Group("cluster.client_metrics", "Metrics that clients push: subscriptions, clients, values.", "Measuring"),
    "metrics": Group("inspect.metrics", "One scrape of a broker's metrics.", "Measuring"),
    "check": Group("check.check", "Check any Kafka-compatible broker: the promises of exactly-once.", "Measuring"),
    "pipeline": Group("pipeline.pipelines", "Exactly-once Spark pipelines: run, status, verify, compact.", "Pipelines"),
    "why": Group("why", "Why is a group behind, why can a client not write, why is a partition not in sync?", "Ours only"),
    "console": Group("console.console", "Pages in a browser: look at a cluster, understand it, act.", "Ours only"),
    "doctor": Group("check.doctor", "Is this machine fit for a broker, and can clients reach it?", "Ours only"),
    "wire": Group("inspect.wire", "Explain a frame of the protocol, in hex or from a packet capture.", "Ours only"),
    "shims": Group("kafka_tools.shims", "Kafka's tools by their own names: kafka-topics and so on.", "This program"),
    "completion": Group("completion", "Let the shell complete commands, topics and groups.", "This program"),
    "profile": Group("profile", "Named connections.", "This program"),
}

NOUNS = {
    "acls": "acl", "configs": "config", "groups": "group", "offset": "offsets", "partition": "partitions", "profiles": "profile",
    "record": "records", "share-groups": "share-group", "tokens": "token", "topics": "topic", "transactions": "txn", "txns": "txn",
    "users": "user",
}  # fmt: skip
"""Other words for groups. Without a verb, such a word lists if the group has `list`: `ottla topics` is `ottla topic list`."""
VERBS = {"ls": ("list",), "rm": ("delete", "remove")}
"""Other words for verbs. Each means the first of its verbs that the group has."""
MOVED = ("consume", "produce")
"""Commands that are also understood after the word `topic`."""


def canonical(words: Sequence[str]) -> list[str]:
    """Returns the words of a command line, with synonyms of a group or verb replaced by its name."""
    noun, rest = NOUNS.get(words[0], words[0]), [*words[1:]]
    if noun == "topic" and rest and rest[0] in MOVED:
        return rest
    if noun != words[0] and (not rest or (rest[0].startswith("-") and rest[0] not in ("-h", "--help"))) and "list" in load_commands(noun):
        rest.insert(0, "list")
    if rest and rest[0] in VERBS and noun in GROUPS:
        rest[:1] = [verb for verb in VERBS[rest[0]] if verb in load_commands(noun)][:1] or rest[:1]
    return [noun, *rest]


def suggested(word: str, group: str | None = None) -> str:
    """Returns a hint for an unknown group, or for an unknown verb of `group`. The hint never names `delete`, or a command with `--yes`."""
    from ottla.client.blocking.cluster import nearest_hint

    known = load_commands(group) if group else {name: load_commands(name).get(name) for name in GROUPS}
    return nearest_hint(word, known, {name for name, one in known.items() if one and (name == "delete" or YES in one.options)})


def find_command(words: Sequence[str]) -> tuple[Command, int] | None:
    """Returns the command at the beginning of `words` and the number of its words: 1 (`produce`) or 2 (`topic list`). The first word must
    be a group. Imports the modules of the group in order, until one has the command; returns None if none has it."""
    for module in GROUPS[words[0]].modules.split():
        importlib.import_module(f"ottla.cli.{module}")
        for count in (1, 2):
            if (found := COMMANDS.get(" ".join(words[:count]))) is not None:
                return found, count
    return None


def load_commands(name: str) -> dict[str, Command]:
    """Imports all modules of a group and returns its commands by verb. A group without verbs has one command: itself (`produce`)."""
    modules = [importlib.import_module(f"ottla.cli.{module}").__name__ for module in GROUPS[name].modules.split()]
    if name in COMMANDS:
        return {name: COMMANDS[name]}
    found = {words.removeprefix(f"{name} "): one for words, one in COMMANDS.items() if words.startswith(f"{name} ")}
    if len(modules) == 1:
        return found
    return dict(sorted(found.items(), key=lambda pair: modules.index(pair[1].run.__module__)))  # a module may import a later one first
