"""Translates a command line of a Kafka tool to a command line of `ottla`, and renames old options. If the tool prints other text than the
command of Ottla, the translation names the printers of the tool's text (`OUTPUTS`). Other differences become options and properties in the
translated line.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence

from ottla.adapters.private_files import private
from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.command import COMMANDS, Args, Command, Refused, Translation, UsageError, command, flag, hidden, option
from ottla.cli.kafka_tools.usage import java_error
from ottla.cli.options import read_properties
from ottla.cli.output import write
from ottla.client.blocking.cluster import Cluster

WORDS = hidden("words", nargs="*")
BROKER_LIST: Mapping[str, str] = {"--broker-list": "--bootstrap-server"}
CONSOLE_SHARE_GROUP = "console-share-consumer"
DAEMON_LOG = "kafkaServer.out"
DAEMON_SECONDS = 30
VERBS: Mapping[str, tuple[str, Sequence[str]]] = {
    "kafka-transactions": ("txn", ("list", "describe", "describe-producers", "find-hanging", "abort", "forceTerminateTransaction")),
    "kafka-cluster": ("cluster", ("cluster-id", "unregister", "list-endpoints")),
    "kafka-features": ("features", ("describe", "upgrade", "downgrade", "disable", "version-mapping", "feature-dependencies")),
    "kafka-storage": ("", ("random-uuid", "format", "info", "version-mapping", "feature-dependencies")),
}


def renamed(arguments: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Returns the line with the options in `names` renamed. `--name=value` keeps its value."""
    found = []
    for word in arguments:
        name, equals, value = word.partition("=")
        found.append(names[name] + equals + value if name in names else word)
    return found


def without(arguments: Sequence[str], flags: Sequence[str]) -> list[str]:
    return [word for word in arguments if word not in flags]


def split_verb(tool: str, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Splits a line into its verb and the other words. The verb may be anywhere in the line, except directly behind an option that could
    take it as its value. Raises UsageError if the line has no verb.
    """
    verbs = VERBS[tool][1]
    for position, word in enumerate(arguments):
        before = arguments[position - 1] if position else ""
        is_value = before.startswith("--") and "=" not in before and before not in ("--help", "--dry-run")
        if word in verbs and not is_value:
            return word, [*arguments[:position], *arguments[position + 1 :]]
    raise UsageError(f"{tool} needs one of {', '.join(verbs)}")


LINES: Mapping[str, str] = {
    "kafka-console-producer": "produce",
    "kafka-console-consumer": "consume -X allow.auto.create.topics=true",
    "kafka-share-consumer-perf-test": "bench share-consumer",
    "kafka-get-offsets": "offsets -o plain",
    "kafka-delete-records": "records delete --yes",
    "kafka-dump-log": "log dump",
    "kafka-producer-perf-test": "bench producer",
    "kafka-consumer-perf-test": "bench consumer",
    "kafka-broker-api-versions": "cluster api-versions",
    "kafka-server-stop": "stop",
}
"""Tools with the options of our command, except `--broker-list` (`BROKER_LISTS`), and the first words of our line."""
BROKER_LISTS = ("kafka-console-producer", "kafka-get-offsets", "kafka-consumer-perf-test")
"""Tools with `--broker-list` as the old name of `--bootstrap-server`. In other tools `--broker-list` is a list of broker ids."""
OUTPUTS: Mapping[str, str] = {
    "cluster": "cluster_output",
    "config": "configs_output",
    "features": "features_output",
    "logdirs": "cluster_output",
    "partitions": "partitions_output",
    "records": "cluster_output",
}
"""The module with the PRINTERS of a translated line, by the line's first word."""


def _console_share_consumer(arguments: list[str]) -> Translation:
    """Translates the console share consumer. `--group`, `group.id=` of a property and `group.id` of a file of properties must agree;
    without them, the group is Kafka's default."""
    rest = renamed(arguments, {"--group": "--share-group", "--consumer-config": "--command-config"})
    groups = _groups_in(rest)
    if len(groups) > 1:
        raise UsageError(f"the group ids given in several places do not match: {', '.join(sorted(groups))}")
    if "--share-group" not in {word.partition("=")[0] for word in rest}:
        rest += ["--share-group", *(groups or [CONSOLE_SHARE_GROUP])]
    return Translation(["consume", "-X", "allow.auto.create.topics=true", "-X", "share.acquire.mode=batch_optimized", *rest])


def _groups_in(words: Sequence[str]) -> set[str]:
    """Returns the different ids of groups in a line of the console share consumer and in its file of properties."""
    found = set()
    for position, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals:
            value = "".join(words[position + 1 : position + 2])
        if name == "--share-group":
            found.add(value)
        elif name == "--command-config" and value:
            found.update(text for key, text in read_properties(value).items() if key == "group.id")
        elif name == "group.id":
            found.add(value)
        elif value.startswith("group.id="):
            found.add(value.partition("=")[2])
    return found


def _log_dirs(arguments: list[str]) -> Translation:
    if "--describe" not in arguments and "--help" not in arguments:
        raise UsageError('Missing required argument "[describe]"')
    return Translation(["logdirs", *arguments])


def _configs(arguments: list[str]) -> Translation:
    flags = {"--describe": "describe", "--alter": "alter"}
    chosen = [flags[word] for word in arguments if word in flags]
    if len(chosen) != 1:
        if "--help" in arguments:
            return Translation(["config", "describe", "--help"])
        raise UsageError("Command must include exactly one action: --describe, --alter")
    rest = without(renamed(arguments, {"--bootstrap-controller": "--bootstrap-server"}), ("--describe", "--alter", "--force"))
    return Translation(["config", chosen[0], *rest])


def _e2e_latency(arguments: list[str]) -> Translation:
    """Turns the positional arguments of versions before 4.x into options: brokers, topic, messages, acks, size, perhaps a file."""
    names = ("--bootstrap-server", "--topic", "--num-records", "--producer-acks", "--record-size", "--command-config")
    if len(arguments) in (5, 6) and not any(word.startswith("-") for word in arguments[:3]):
        pairs = zip(names, arguments, strict=False)
        return Translation(["bench", "e2e", *(word for pair in pairs for word in pair)])
    return Translation(["bench", "e2e", *arguments])


def _leader_election(arguments: list[str]) -> Translation:
    given = {word.partition("=")[0] for word in arguments}
    if "--help" not in given:
        needed = ["election-type", *(["partition"] if "--topic" in given else [])]
        if missing := [name for name in needed if f"--{name}" not in given]:
            raise UsageError(f"Missing required option(s): {', '.join(missing)}")
    return Translation(["partitions", "elect", "--yes", *renamed(arguments, {"--bootstrap-controller": "--bootstrap-server"})])


def _preferred_replica_election(arguments: list[str]) -> Translation:
    """Chooses all partitions unless the line names a file with partitions, as the older tool did."""
    everywhere = [] if any(word.startswith("--path-to-json-file") for word in arguments) else ["--all-topic-partitions"]
    return Translation(["partitions", "elect", "--yes", *everywhere, *arguments])


def _reassign_partitions(arguments: list[str]) -> Translation:
    verbs = {
        "--generate": ["generate"],
        "--execute": ["reassign", "--yes", "--execute"],
        "--verify": ["verify"],
        "--cancel": ["cancel", "--yes"],
        "--list": ["list"],
    }
    chosen = [verbs[word] for word in arguments if word in verbs]
    if len(chosen) != 1:
        if "--help" in arguments:
            return Translation(["partitions", "--help"])
        raise UsageError("Command must include exactly one action: --generate, --execute, --verify, --cancel, --list")
    rest = without(arguments, tuple(verbs))
    return Translation(["partitions", *chosen[0], *renamed(rest, {"--bootstrap-controller": "--bootstrap-server"})])


def _transactions(arguments: list[str]) -> Translation | Command:
    if set(arguments) & {"-h", "--help"} and not set(arguments) & set(VERBS["kafka-transactions"][1]):
        return Translation(["txn", "--help"])
    verb, rest = split_verb("kafka-transactions", arguments)
    if verb in ("abort", "forceTerminateTransaction"):
        return Translation(["txn", "abort", "--yes", *renamed(rest, {"--transactionalId": "--transactional-id"})])
    if verb == "find-hanging":
        # Kafka's documentation says --broker: its parser accepts a unique prefix of --broker-id.
        rest = renamed(rest, {"--broker": "--broker-id"})
        if not {word.partition("=")[0] for word in rest} & {"--topic", "--broker-id", "-h", "--help"}:
            raise UsageError("find-hanging needs --topic or --broker-id, to bound the search")
    return Translation(["txn", verb, *rest])


def _features(arguments: list[str]) -> Translation | Command:
    verb, rest = split_verb("kafka-features", arguments)
    return _feature_levels(verb, renamed(rest, {"--bootstrap-controller": "--bootstrap-server"}))


def _feature_levels(verb: str, rest: list[str]) -> Translation:
    """Adds the newest release to `version-mapping` without a release, because Kafka's tool shows the newest by default."""
    from ottla.cli.cluster.features import RELEASES

    is_named = any(word.startswith("--release-version") for word in rest)
    newest = ["--release-version", list(RELEASES)[-1]] if verb == "version-mapping" and not is_named else []
    return Translation(["features", verb, *newest, *rest])


def _cluster(arguments: list[str]) -> Translation | Command:
    verb, rest = split_verb("kafka-cluster", arguments)
    rest = renamed(rest, {"--bootstrap-controller": "--bootstrap-server"})
    if verb == "cluster-id":
        return Translation(["cluster", "cluster-id", *rest])
    return COMMANDS[f"kafka-cluster {verb}"]


@command(
    "kafka-cluster unregister",
    "Remove the registration of a broker.",
    WORDS,
    option("--id", "-i", type=int, required=True, help="the broker"),
    has_output=False,
)
def _unregister(args: Args, cluster: Cluster) -> None:
    from ottla.client.core.admin import unregister_broker

    about = f"broker {args.id}: "
    try:
        unregister_broker(cluster, args.id)
    except ApiError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            write("The target cluster does not support the broker unregistration API.\n")
            return
        raise Refused(java_error(error, error.message.removeprefix(about))) from None
    write(f"Broker {args.id} is no longer registered.\n")


@command(
    "kafka-cluster list-endpoints",
    "Brokers and their addresses.",
    WORDS,
    flag("--include-fenced-brokers", help="also brokers that are not running"),
    has_output=False,
)
def _endpoints(args: Args, cluster: Cluster) -> None:
    from ottla.client.core.admin import describe_cluster

    brokers = [broker for broker in describe_cluster(cluster).brokers if args.include_fenced_brokers or not broker.is_fenced]
    host = max([9, *(len(broker.host) for broker in brokers)])
    rack = max([10, *(len(broker.rack or "null") for broker in brokers)])
    line = f"{{:<10}} {{:<{host}}} {{:<10}} {{:<{rack}}} {{:<10}} {{:<15}}\n"
    write(line.format("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"))
    for broker in brokers:
        state = "fenced" if broker.is_fenced else "unfenced"
        write(line.format(broker.broker_id, broker.host, broker.port, broker.rack or "null", state, "broker"))


# The server's own scripts


def _server_start(arguments: list[str]) -> Translation | Command:
    rest = without(arguments, ("-daemon",))
    if not rest:
        raise UsageError("kafka-server-start [-daemon] FILE [--override KEY=VALUE]...")
    if rest[0] in ("-h", "--help"):
        return Translation(["start", "--help"])
    line = ["start", "--config", rest[0], *rest[1:]]
    if "-daemon" not in arguments:
        return Translation(line)
    # These options accept every word: the started broker parses the words and reports errors.
    words = (option("words", nargs="*"), option("-daemon", "--override", "--set", "-c", nargs="?", action="append"))
    return Command("Start a broker in the background.", words, lambda: _start_daemon(line), has_connection=False, has_output=False)


def _start_daemon(line: list[str]) -> int:
    """Starts a broker that outlives this program and logs to DAEMON_LOG. Returns 0 when the broker is ready. Raises `Refused` if the broker
    has ended, or is not ready within DAEMON_SECONDS. In the second case it continues to run."""
    import subprocess
    import time

    with open(DAEMON_LOG, "wb", opener=private) as log:
        command = [sys.executable, "-m", "ottla.cli.main", *line]
        broker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + DAEMON_SECONDS
    while time.monotonic() < deadline:
        with open(DAEMON_LOG, encoding="utf-8", errors="replace") as said:
            ready = [text for text in said if text.startswith("READY ")]
        if ready:
            write(ready[0])
            return 0
        if broker.poll() is not None:
            raise Refused(f"the broker did not start; {DAEMON_LOG} says why", "BROKER_NOT_AVAILABLE")
        time.sleep(0.02)
    raise Refused(f"the broker (process {broker.pid}) was not ready within {DAEMON_SECONDS} s; see {DAEMON_LOG}", "REQUEST_TIMED_OUT")


def _storage(arguments: list[str]) -> Translation | Command:
    verb, rest = split_verb("kafka-storage", arguments)
    if verb in ("version-mapping", "feature-dependencies"):
        return _feature_levels(verb, renamed(rest, {"-r": "--release-version", "-f": "--feature"}))
    do = {"random-uuid": _random_uuid}.get(verb, _nothing_to_format)
    return Command("Cluster ids; there is nothing to format.", STORAGE_OPTIONS, do, has_connection=False, has_output=False)


STORAGE_OPTIONS = (
    WORDS,
    option("-t", "--cluster-id", nargs="?", metavar="ID", help="accepted"),
    option("-c", "--config", metavar="FILE", help="accepted"),
    *(
        flag(*names, help="accepted")
        for names in (("-s", "--standalone"), ("-g", "--ignore-formatted"), ("-N", "--no-initial-controllers"))
    ),
    *(
        option(*names, action="append", metavar="TEXT", help="accepted")
        for names in (("-I", "--initial-controllers"), ("-r", "--release-version"), ("-f", "--feature"))
    ),
    option("-S", "--add-scram", action="append", metavar="TEXT", help="refused: users are added while the broker runs"),
)


def _random_uuid() -> None:
    import uuid

    from ottla.base.uuids import uuid_to_text

    while (text := uuid_to_text(uuid.uuid4().bytes)).startswith("-"):
        pass
    write(text + "\n")


def _nothing_to_format(args: Args) -> None:
    if args.add_scram:
        raise Refused("--add-scram is not offered; add users while the broker runs: ottla user add", "UNSUPPORTED_VERSION")
    sys.stderr.write("nothing to do: the broker prepares its directories when it starts, and makes its own cluster id\n")


_MAKERS: Mapping[str, Callable[[list[str]], Translation | Command]] = {
    "kafka-console-share-consumer": _console_share_consumer,
    "kafka-log-dirs": _log_dirs,
    "kafka-configs": _configs,
    "kafka-e2e-latency": _e2e_latency,
    "kafka-transactions": _transactions,
    "kafka-leader-election": _leader_election,
    "kafka-preferred-replica-election": _preferred_replica_election,
    "kafka-reassign-partitions": _reassign_partitions,
    "kafka-features": _features,
    "kafka-cluster": _cluster,
    "kafka-server-start": _server_start,
    "kafka-storage": _storage,
}


def make(tool: str, arguments: list[str]) -> Translation | Command:
    """Returns the translated command line with the printers of the tool's output. If no command line of `ottla` does the same, returns a
    command instead.
    """
    if tool in LINES:
        made: Translation | Command = Translation(
            [*LINES[tool].split(), *(renamed(arguments, BROKER_LIST) if tool in BROKER_LISTS else arguments)]
        )
    else:
        made = _MAKERS[tool](arguments)
    if isinstance(made, Translation) and made.argv[0] in OUTPUTS:
        return made._replace(printers=importlib.import_module(f"ottla.cli.kafka_tools.{OUTPUTS[made.argv[0]]}").PRINTERS)
    return made
