"""Finds Kafka's tools by their names: `ottla kafka-topics --list`, `ottla kafka-topics.sh --list`, `ottla kafka-run-class CLASS ...`. Most
command lines of tools are translated to a command of Ottla: `kafka-log-dirs --describe` runs `ottla logdirs`. The rows of Ottla's command
are then printed as Kafka's text (`render/kafka.py`). Tools whose options and output differ too much are implemented in this package
instead. Standard output has the text of Kafka's tools; hints in Ottla's own words are written to stderr. Two differences are on purpose:
the exit codes are Ottla's (2 for wrong usage, 1 for a refusal even if Kafka returns 0), and there are no Java stack traces.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from ottla.base.errors import ErrorCode
from ottla.cli.command import COMMANDS, Command, Refused, Translation, UsageError, pointing_to


class Tool(NamedTuple):
    """A tool: the module of this package that implements it, its help, and its Java class names in all versions of Kafka."""

    module: str
    help: str
    classes: tuple[str, ...]


NEW = "org.apache.kafka.tools."

TOOLS: dict[str, Tool] = {
    "kafka-topics": Tool("topics", "Topics.", ("kafka.admin.TopicCommand", f"{NEW}TopicCommand")),
    "kafka-console-producer": Tool("translations", "Lines of input as records.", ("kafka.tools.ConsoleProducer", f"{NEW}ConsoleProducer")),
    "kafka-console-consumer": Tool(
        "translations", "Records as lines.", ("kafka.tools.ConsoleConsumer", f"{NEW}ConsoleConsumer", f"{NEW}consumer.ConsoleConsumer")
    ),
    "kafka-consumer-groups": Tool(
        "groups", "Consumer groups.", ("kafka.admin.ConsumerGroupCommand", f"{NEW}consumer.group.ConsumerGroupCommand")
    ),
    "kafka-groups": Tool("groups", "Groups of every kind.", (f"{NEW}GroupsCommand",)),
    "kafka-share-groups": Tool("groups", "Share groups.", (f"{NEW}consumer.group.ShareGroupCommand",)),
    "kafka-streams-groups": Tool("groups", "Streams groups.", (f"{NEW}streams.StreamsGroupCommand",)),
    "kafka-console-share-consumer": Tool("translations", "Records of a share group as lines.", (f"{NEW}consumer.ConsoleShareConsumer",)),
    "kafka-configs": Tool("translations", "Settings.", ("kafka.admin.ConfigCommand", f"{NEW}ConfigCommand")),
    "kafka-client-metrics": Tool("client_metrics", "Subscriptions to metrics of clients.", (f"{NEW}ClientMetricsCommand",)),
    "kafka-delegation-tokens": Tool(
        "delegation_tokens", "Delegation tokens.", ("kafka.admin.DelegationTokenCommand", f"{NEW}DelegationTokenCommand")
    ),
    "kafka-acls": Tool("acls", "Access rules.", ("kafka.admin.AclCommand", f"{NEW}AclCommand")),
    "kafka-get-offsets": Tool("translations", "Offsets of partitions.", ("kafka.tools.GetOffsetShell", f"{NEW}GetOffsetShell")),
    "kafka-delete-records": Tool("translations", "Delete old records.", ("kafka.admin.DeleteRecordsCommand", f"{NEW}DeleteRecordsCommand")),
    "kafka-log-dirs": Tool("translations", "Log directories.", ("kafka.admin.LogDirsCommand", f"{NEW}LogDirsCommand")),
    "kafka-dump-log": Tool("translations", "Show segments and other files.", ("kafka.tools.DumpLogSegments", f"{NEW}DumpLogSegments")),
    "kafka-transactions": Tool("translations", "Transactions.", (f"{NEW}TransactionsCommand",)),
    "kafka-cluster": Tool("translations", "The cluster's id and endpoints.", ("kafka.tools.ClusterTool", f"{NEW}ClusterTool")),
    "kafka-broker-api-versions": Tool(
        "translations", "API versions of the brokers.", ("kafka.admin.BrokerApiVersionsCommand", f"{NEW}BrokerApiVersionsCommand")
    ),
    "kafka-reassign-partitions": Tool(
        "translations", "Move replicas.", ("kafka.admin.ReassignPartitionsCommand", f"{NEW}reassign.ReassignPartitionsCommand")
    ),
    "kafka-leader-election": Tool("translations", "Choose leaders.", ("kafka.admin.LeaderElectionCommand", f"{NEW}LeaderElectionCommand")),
    "kafka-preferred-replica-election": Tool(
        "translations", "Choose leaders, by the older name.", ("kafka.admin.PreferredReplicaLeaderElectionCommand",)
    ),
    "kafka-features": Tool("translations", "Feature levels.", ("kafka.admin.FeatureCommand", f"{NEW}FeatureCommand")),
    "kafka-producer-perf-test": Tool("translations", "Measure producing.", (f"{NEW}ProducerPerformance",)),
    "kafka-consumer-perf-test": Tool(
        "translations", "Measure consuming.", ("kafka.tools.ConsumerPerformance", f"{NEW}ConsumerPerformance")
    ),
    "kafka-share-consumer-perf-test": Tool("translations", "Measure consuming in a share group.", (f"{NEW}ShareConsumerPerformance",)),
    "kafka-e2e-latency": Tool("translations", "Measure end-to-end latency.", ("kafka.tools.EndToEndLatency", f"{NEW}EndToEndLatency")),
    "kafka-server-start": Tool("translations", "Start a broker.", ("kafka.Kafka",)),
    "kafka-server-stop": Tool("translations", "Stop the broker.", ()),
    "kafka-storage": Tool("translations", "Cluster ids; there is nothing to format.", ("kafka.tools.StorageTool",)),
}
NOT_OFFERED: dict[str, str] = {
    "kafka-metadata-quorum": "a KRaft quorum",
    "kafka-metadata-shell": "a KRaft quorum",
    "kafka-replica-verification": "comparing replicas",
    "kafka-streams-application-reset": "applications with classic groups; `ottla streams-group reset-offsets` is for streams groups",
    "kafka-mirror-maker": "mirroring",
    "kafka-jmx": "JMX; `ottla metrics` shows the same figures",
    "kafka-verifiable-producer": "Kafka's own system tests; `ottla produce` writes records",
    "kafka-verifiable-consumer": "Kafka's own system tests; `ottla consume` reads records",
    "kafka-verifiable-share-consumer": "Kafka's own system tests",
    "connect-standalone": "Kafka Connect",
    "connect-distributed": "Kafka Connect",
    "connect-mirror-maker": "Kafka Connect",
    "connect-plugin-path": "Kafka Connect",
    "zookeeper-server-start": "ZooKeeper, which a broker by itself does without; just run kafka-server-start",
    "zookeeper-server-stop": "ZooKeeper, which a broker by itself does without",
    "zookeeper-shell": "ZooKeeper, which a broker by itself does without",
    "zookeeper-security-migration": "ZooKeeper, which a broker by itself does without",
    "trogdor": "faults for Kafka's own system tests",
}
"""Tools of Kafka that are not offered. The text says what each is for, and sometimes what to use instead."""

RUN_CLASS = "kafka-run-class"
KAFKA_LEVEL = "4.4.0"
_RUN_CLASS_FLAGS = {"-daemon": 0, "-loggc": 0, "-name": 1}


def make(name: str, arguments: list[str]) -> Command | Translation:
    """Returns the command that implements the tool, or the translation of its command line to one of `ottla`."""
    module = importlib.import_module(f"ottla.cli.kafka_tools.{TOOLS[name].module}")
    made: Command | Translation = module.make(name, arguments) if TOOLS[name].module == "translations" else COMMANDS[name]
    return made


def with_brokers(name: str, arguments: list[str]) -> Command | list[str]:
    """Replaces `--zookeeper` by the registered brokers. Returns the changed command line; or a command that makes the change in ZooKeeper,
    if no broker can make it.
    """
    if not any(word.partition("=")[0] == "--zookeeper" for word in arguments):
        return arguments
    from ottla.cli.kafka_tools.zookeeper import resolve  # imported here, because it is rarely needed

    return resolve(name, arguments)


def version_line() -> str:
    """Returns the line that `--version` prints. It begins with the supported version of Kafka, because scripts look for it there."""
    from ottla._version import __version__

    return f"{KAFKA_LEVEL} (Ottla {__version__})\n"


def find(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the tool's name and arguments. Raises `Refused` for a tool that Ottla does not have, UsageError for an unknown tool."""
    name, arguments = argv[0].removesuffix(".sh").removesuffix(".bat"), list(argv[1:])
    if name in NOT_OFFERED:
        raise Refused(f"{name} is not offered: {NOT_OFFERED[name]}", ErrorCode.UNSUPPORTED_VERSION.name)
    if name != RUN_CLASS:
        if name not in TOOLS:
            _refuse_unknown(name, [*TOOLS, RUN_CLASS], "tool")
        return name, arguments
    while arguments and arguments[0] in _RUN_CLASS_FLAGS:
        del arguments[: 1 + _RUN_CLASS_FLAGS[arguments[0]]]
    if not arguments:
        raise UsageError("name a class, for instance kafka.tools.GetOffsetShell")
    by_class = {name_of_class: tool for tool, found in TOOLS.items() for name_of_class in found.classes}
    if arguments[0] not in by_class:
        _refuse_unknown(arguments[0], list(by_class), "class")
    return by_class[arguments[0]], arguments[1:]


def _refuse_unknown(name: str, known: list[str], noun: str) -> NoReturn:
    from ottla.client.blocking.cluster import nearest_hint

    deleting = [one for one in known if "delete" in one.lower()]
    raise UsageError(pointing_to("ottla shims list", f"no {noun} {name!r} here{nearest_hint(name, known, deleting)}"))
