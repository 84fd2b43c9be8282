"""The command lines that `compare_tools.py` runs with Kafka's tools and with Ottla's, in this order, on an empty broker.

A line with a known difference has the reason for it. FILES is replaced by a directory with the files below and a segment, NODE by the
broker id.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """One command line, `tool arguments`."""

    line: str
    stdin: str = ""
    why: str = ""
    """Why stdout differs; empty if it does not."""
    exits: str = ""
    """Why the exit code differs; empty if it does not."""

    @property
    def tool(self) -> str:
        return self.line.split()[0]


_EXIT_RESET = "a refusal is exit code 1; Kafka's tool exits 0"
_TRACE = "Kafka's tool prints a stack trace on stdout"
_ENDED = "the JVM of all lines cannot end within Kafka's tool, which prints that"
_OLD_NAME = "that an option has an old name is not printed on stdout"
_EPOCH = "Kafka's client raises the producer's epoch with each transaction (KIP-890), our client keeps it"
_WARNING = "that a partition has no record at that time is printed on stderr"

_ALICE_AT_APP = "--entity-type users --entity-name alice --entity-type clients --entity-name app"

SEGMENT = "00000000000000000000.log"

CASES: tuple[Case, ...] = (
    Case("kafka-topics --create --topic quickstart-events"),
    Case("kafka-topics --create --topic orders --partitions 3 --replication-factor 1 --config retention.ms=1000000"),
    Case("kafka-topics --create --topic orders"),
    Case("kafka-topics --create --topic orders --if-not-exists"),
    Case("kafka-topics --create --topic my.topic_x", why="the warning about '.' and '_' stands on stderr"),
    Case("kafka-topics --create --topic bad!name"),
    Case("kafka-topics --create --topic rf2 --replication-factor 2"),
    Case("kafka-topics --create --topic bad --config nope=1"),
    Case("kafka-topics --create --topic bad --partitions 0"),
    Case("kafka-topics --create --topic assigned --replica-assignment NODE,NODE"),
    Case("kafka-topics --list"),
    Case("kafka-topics --list --exclude-internal"),
    Case("kafka-topics --list --topic ord.*"),
    Case("kafka-topics --describe"),
    Case("kafka-topics --describe --topic orders"),
    Case("kafka-topics --describe --topic nope"),
    Case("kafka-topics --describe --topic nope --if-exists"),
    Case("kafka-topics --describe --topics-with-overrides"),
    Case("kafka-topics --describe --under-replicated-partitions"),
    Case("kafka-topics --describe --unavailable-partitions"),
    Case("kafka-topics --describe --at-min-isr-partitions"),
    Case("kafka-topics --describe --under-min-isr-partitions"),
    Case("kafka-topics --describe --topic ord.*,quick.*"),
    Case("kafka-topics --alter --topic orders --partitions 4"),
    Case("kafka-topics --alter --topic orders --partitions 2"),
    Case("kafka-topics --alter --topic nope --partitions 2"),
    Case("kafka-topics --delete --topic assigned"),
    Case("kafka-topics --delete --topic nope"),
    Case("kafka-topics --delete --topic nope --if-exists"),
    Case("kafka-topics --list --describe"),
    Case("kafka-topics --create"),
    Case("kafka-topics --nosuch"),
    Case("kafka-topics --describe --topic orders --topic quickstart-events", why="wrong usage is printed on stderr only"),
    Case("kafka-topics --create --topic x --partitions abc", why="wrong usage is printed on stderr only"),
    Case("kafka-console-producer --topic quickstart-events", "This is my first event\nThis is my second event\n"),
    Case(
        "kafka-console-producer --topic orders --reader-property parse.key=true --reader-property key.separator=:",
        "k1:v1\nk2:v2\nk3:v3\n",
    ),
    Case(
        "kafka-console-producer --topic orders --property parse.key=true --property key.separator=:",
        "k1:v1\nbad\nk3:v3\n",
        why=_OLD_NAME,
    ),
    Case(
        "kafka-console-producer --topic orders --reader-property parse.headers=true --reader-property parse.key=true",
        "h1:1,h2:2\tk\tv\n",
    ),
    Case("kafka-console-producer --topic quickstart-events --compression-codec --sync", "zipped\n"),
    Case("kafka-console-producer --topic quickstart-events --compression-codec lz4 --request-required-acks 1", "squeezed\n"),
    Case("kafka-console-producer --topic quickstart-events --command-property enable.idempotence=false", "plain\n"),
    Case("kafka-topics --create --topic nulls --partitions 1"),
    Case(
        "kafka-console-producer --topic nulls --reader-property parse.key=true --reader-property null.marker=NULL"
        " --reader-property key.separator=:",
        "k4:NULL\nNULL:v5\n",
    ),
    Case(
        "kafka-console-consumer --topic nulls --partition 0 --offset earliest --max-messages 2 --timeout-ms 9000"
        " --formatter-property print.key=true --formatter-property null.literal=<nothing>"
    ),
    Case("kafka-console-consumer --topic quickstart-events --from-beginning --max-messages 5 --timeout-ms 9000 --group g0"),
    Case(
        "kafka-console-consumer --topic quickstart-events --partition 0 --offset 1 --max-messages 2 --timeout-ms 9000"
        " --formatter-property print.key=true --formatter-property print.timestamp=true --formatter-property print.offset=true"
        " --formatter-property print.partition=true --formatter-property print.headers=true"
    ),
    Case(
        "kafka-console-consumer --topic quickstart-events --partition 0 --offset earliest --max-messages 1 --timeout-ms 9000"
        " --formatter-property print.epoch=true",
        why="Kafka's tool loses the leader epoch on the way to print.epoch and always prints NOT_PRESENT",
    ),
    Case(
        "kafka-console-consumer --topic orders --from-beginning --max-messages 5 --timeout-ms 9000 --formatter-property print.key=true"
        " --formatter-property print.headers=true --formatter-property key.separator=; --formatter-property null.literal=nothing --group g1"
    ),
    Case("kafka-console-consumer --include ord.* --from-beginning --max-messages 3 --timeout-ms 9000 --group g2"),
    Case("kafka-console-consumer --topic quickstart-events --partition 0 --offset latest --timeout-ms 300"),
    Case("kafka-console-consumer --topic quickstart-events --partition 0 --offset earliest --max-messages 1 --timeout-ms 9000"),
    Case(
        "kafka-console-consumer --topic quickstart-events --partition 0 --offset earliest --max-messages 1 --timeout-ms 9000"
        " --isolation-level read_committed --formatter-property print.value=false --formatter-property print.offset=true"
    ),
    Case(
        "kafka-console-consumer --topic orders --partition 0 --offset earliest --max-messages 1 --timeout-ms 9000"
        " --property print.key=true --property key.separator=-",
        why=_OLD_NAME,
    ),
    Case(
        "kafka-console-consumer --topic orders --partition 0 --offset earliest --max-messages 1 --timeout-ms 9000"
        " --consumer-property isolation.level=read_committed",
        why=_OLD_NAME,
    ),
    Case(
        "kafka-console-consumer --topic orders --partition 0 --offset earliest --max-messages 1 --timeout-ms 9000"
        " --formatter org.apache.kafka.tools.consumer.NoOpMessageFormatter"
    ),
    Case("kafka-console-consumer --timeout-ms 500"),
    Case("kafka-consumer-groups --list"),
    Case("kafka-consumer-groups --list --state"),
    Case("kafka-consumer-groups --list --type"),
    Case("kafka-consumer-groups --list --state --type"),
    Case("kafka-consumer-groups --list --state Stable"),
    Case("kafka-consumer-groups --list --state Nonsense"),
    Case("kafka-consumer-groups --describe --group g1"),
    Case("kafka-consumer-groups --describe --group g1 --members"),
    Case("kafka-consumer-groups --describe --group g1 --members --verbose"),
    Case("kafka-consumer-groups --describe --group g1 --state"),
    Case("kafka-consumer-groups --describe --group g1 --state --verbose"),
    Case("kafka-consumer-groups --describe --group g1 --group g2"),
    Case("kafka-consumer-groups --describe --group nope", exits=_EXIT_RESET),
    Case("kafka-consumer-groups --describe --all-groups --state"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders --to-earliest"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders --to-earliest --export --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders --to-earliest --execute"),
    Case("kafka-consumer-groups --describe --group g1 --verbose"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --all-topics --shift-by 1 --execute"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --all-topics --shift-by -9 --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --all-topics --to-offset 100 --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders:0,1 --to-datetime 2020-01-01T00:00:00.000 --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders:0,1 --to-datetime 2999-01-01T00:00:00.0 --dry-run", why=_WARNING),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders --by-duration P1D --dry-run", why=_WARNING),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders:2 --topic quickstart-events --to-latest --execute"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --from-file FILES/reset.csv --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --group g2 --from-file FILES/reset2.csv --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --to-earliest --dry-run", why="wrong usage is printed on stderr only"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --all-topics --dry-run", why="wrong usage is printed on stderr only"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --all-topics --to-earliest --to-latest --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group new --topic orders --shift-by 1 --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group new --topic orders --to-current --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders --to-offset 0 --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders:0 --shift-by 0 --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group new --topic orders:9 --to-current --dry-run", exits=_EXIT_RESET),
    Case("kafka-consumer-groups --reset-offsets --all-groups --topic orders --to-latest --export --dry-run"),
    Case("kafka-consumer-groups --delete-offsets --group g1 --topic orders:0"),
    Case("kafka-consumer-groups --delete-offsets --group g1 --topic orders"),
    Case("kafka-consumer-groups --delete-offsets --group nope --topic orders", exits=_EXIT_RESET),
    Case("kafka-groups --list"),
    Case("kafka-groups --list --consumer"),
    Case("kafka-groups --list --group-type classic"),
    Case("kafka-groups --list --share"),
    Case("kafka-consumer-groups --validate-regex orders-.*"),
    Case("kafka-consumer-groups --validate-regex a(?=b)"),
    Case("kafka-consumer-groups --delete --group g1"),
    Case("kafka-consumer-groups --delete --group g2 --group nope", exits=_EXIT_RESET),
    Case("kafka-consumer-groups --delete --group nope", exits=_EXIT_RESET),
    Case("kafka-console-consumer --topic quickstart-events --from-beginning --max-messages 1 --timeout-ms 9000"),
    Case("kafka-groups --list", why="Kafka's console consumer leaves a group behind even without --group, ours does not"),
    Case("kafka-delete-records --offset-json-file FILES/delete.json", exits=_EXIT_RESET),
    Case("kafka-delete-records --offset-json-file FILES/none.json"),
    Case("kafka-get-offsets --topic orders"),
    Case("kafka-get-offsets --topic orders --time -2"),
    Case("kafka-get-offsets --topic orders --time earliest"),
    Case("kafka-get-offsets --topic-partitions orders:0-2,quick.*"),
    Case("kafka-get-offsets --time latest --exclude-internal-topics"),
    Case("kafka-get-offsets --topic nope"),
    Case("kafka-get-offsets --topic orders --time 99999999999999"),
    Case("kafka-get-offsets --topic orders --partitions 0,2"),
    Case("kafka-get-offsets --topic quickstart-events --time max-timestamp"),
    Case("kafka-configs --describe --entity-type topics --entity-name orders"),
    Case("kafka-configs --describe --topic orders"),
    Case("kafka-configs --alter --topic orders --add-config retention.ms=5000000,cleanup.policy=[compact,delete]"),
    Case("kafka-configs --describe --entity-type topics --entity-name orders"),
    Case("kafka-configs --alter --entity-type topics --entity-name orders --delete-config retention.ms"),
    Case("kafka-configs --alter --entity-type topics --entity-name orders --add-config nope=5"),
    Case("kafka-configs --describe --entity-type topics"),
    Case("kafka-configs --describe --entity-type brokers --entity-name NODE"),
    Case("kafka-configs --describe --entity-type brokers --entity-default"),
    Case("kafka-configs --alter --entity-type brokers --entity-name NODE --add-config log.cleaner.threads=2"),
    Case("kafka-configs --describe"),
    Case("kafka-configs --alter --topic orders"),
    Case("kafka-configs --alter --entity-type users --entity-name alice --add-config producer_byte_rate=20000000"),
    Case(f"kafka-configs --alter {_ALICE_AT_APP} --add-config producer_byte_rate=1024,consumer_byte_rate=2048"),
    Case("kafka-configs --alter --entity-type users --entity-default --add-config controller_mutation_rate=0.5"),
    Case("kafka-configs --alter --user alice --client-defaults --add-config consumer_byte_rate=1"),
    Case("kafka-configs --alter --entity-type clients --entity-name app --add-config request_percentage=12.5"),
    Case("kafka-configs --alter --client-defaults --add-config request_percentage=200"),
    Case("kafka-configs --alter --entity-type ips --entity-name 127.0.0.1 --add-config connection_creation_rate=100000"),
    Case("kafka-configs --alter --ip-defaults --add-config connection_creation_rate=100000"),
    Case("kafka-configs --describe --entity-type users"),
    Case("kafka-configs --describe --entity-type users --entity-name alice"),
    Case("kafka-configs --describe --entity-type users --entity-name missing"),
    Case("kafka-configs --describe --user-defaults"),
    Case("kafka-configs --describe --entity-type clients"),
    Case("kafka-configs --describe --entity-type clients --entity-default"),
    Case(f"kafka-configs --describe {_ALICE_AT_APP}"),
    Case("kafka-configs --describe --entity-type users --entity-name alice --entity-type clients"),
    Case("kafka-configs --describe --entity-type users --entity-type clients"),
    Case("kafka-configs --describe --user alice --client app"),
    Case("kafka-configs --describe --entity-type ips"),
    Case("kafka-configs --describe --ip 127.0.0.1"),
    Case("kafka-configs --alter --user alice --add-config producer_byte_rate=fast"),
    Case("kafka-configs --alter --user alice --add-config producer_byte_rate=1.5"),
    Case("kafka-configs --alter --user alice --add-config connection_creation_rate=1"),
    Case("kafka-configs --alter --user alice --delete-config request_percentage"),
    Case("kafka-configs --alter --entity-type users --add-config producer_byte_rate=1"),
    Case("kafka-configs --describe --user alice --topic orders"),
    Case("kafka-configs --alter --user alice --delete-config producer_byte_rate"),
    Case(f"kafka-configs --alter {_ALICE_AT_APP} --delete-config producer_byte_rate,consumer_byte_rate"),
    Case("kafka-configs --alter --entity-type users --entity-default --delete-config controller_mutation_rate"),
    Case("kafka-configs --alter --client-defaults --delete-config request_percentage"),
    Case("kafka-configs --alter --ip-defaults --delete-config connection_creation_rate"),
    Case("kafka-configs --describe --user alice"),
    Case("kafka-configs --alter --user alice --add-config SCRAM-SHA-256=[iterations=1,password=x]"),
    Case("kafka-configs --alter --user alice --add-config SCRAM-SHA-256=[password=x],producer_byte_rate=1"),
    Case("kafka-configs --alter --user-defaults --add-config SCRAM-SHA-256=[password=x]"),
    Case("kafka-reassign-partitions --list"),
    Case("kafka-reassign-partitions --generate --topics-to-move-json-file FILES/topics.json --broker-list NODE"),
    Case("kafka-reassign-partitions --execute --reassignment-json-file FILES/move.json"),
    Case("kafka-reassign-partitions --execute --reassignment-json-file FILES/move.json --throttle 5000000"),
    Case("kafka-configs --describe --entity-type brokers --entity-name NODE"),
    Case("kafka-configs --describe --entity-type topics --entity-name nulls"),
    Case("kafka-reassign-partitions --verify --reassignment-json-file FILES/move.json --preserve-throttles"),
    Case("kafka-reassign-partitions --verify --reassignment-json-file FILES/move.json"),
    Case(
        "kafka-reassign-partitions --execute --additional --reassignment-json-file FILES/move.json --throttle 5000000"
        " --replica-alter-log-dirs-throttle 1000000 --timeout 1000 --disallow-replication-factor-change"
    ),
    Case("kafka-reassign-partitions --cancel --reassignment-json-file FILES/move.json"),
    Case("kafka-reassign-partitions --cancel --reassignment-json-file FILES/move.json --preserve-throttles"),
    Case("kafka-configs --describe --entity-type brokers --entity-name NODE"),
    Case("kafka-reassign-partitions --execute --reassignment-json-file FILES/away.json", why=_TRACE),
    Case("kafka-reassign-partitions --execute --reassignment-json-file FILES/none.json", why=_TRACE),
    Case("kafka-reassign-partitions --execute --reassignment-json-file FILES/move.json --preserve-throttles"),
    Case("kafka-reassign-partitions --execute --verify --reassignment-json-file FILES/move.json"),
    Case("kafka-leader-election --election-type preferred --topic nulls --partition 0"),
    Case("kafka-leader-election --election-type PREFERRED --all-topic-partitions"),
    Case("kafka-leader-election --election-type preferred --path-to-json-file FILES/elect.json"),
    Case("kafka-leader-election --election-type unclean --topic nulls --partition 0"),
    Case("kafka-leader-election --election-type preferred --topic nulls"),
    Case("kafka-leader-election --topic nulls --partition 0"),
    Case("kafka-log-dirs --describe --topic-list orders"),
    Case("kafka-log-dirs --describe --broker-list NODE --topic-list orders,nulls"),
    Case("kafka-log-dirs --describe --broker-list 77"),
    Case("kafka-producer-perf-test --topic paid --num-records 10 --record-size 10 --throughput -1 --transactional-id pay"),
    Case(
        "kafka-console-consumer --topic paid --partition 0 --offset earliest --isolation-level read_committed --timeout-ms 3000"
        " --formatter-property print.value=false --formatter-property print.offset=true"
    ),
    Case("kafka-transactions describe --transactional-id pay", why=_EPOCH),
    Case("kafka-transactions describe-producers --topic paid --partition 0", why=_EPOCH),
    *(
        Case(f"kafka-dump-log --files FILES/{SEGMENT} {options}".rstrip())
        for options in ("", "--print-data-log", "--deep-iteration", "--print-data-log --skip-record-metadata", "--max-bytes 200")
    ),
    Case("kafka-transactions list"),
    Case("kafka-transactions describe --transactional-id nope"),
    Case("kafka-transactions describe-producers --topic orders --partition 0"),
    Case("kafka-transactions find-hanging --broker-id NODE"),
    Case("kafka-transactions find-hanging --topic paid"),
    Case("kafka-get-offsets --topic paid --time -1"),
    Case("kafka-cluster cluster-id"),
    Case("kafka-cluster list-endpoints"),
    Case("kafka-cluster unregister --id 77"),
    Case("kafka-configs --describe --entity-type brokers --entity-name NODE"),
    Case("kafka-broker-api-versions", why="the newest version that the tool itself speaks: Kafka's is 4.3's, ours is 4.4's"),
    Case("kafka-features describe"),
    Case("kafka-features upgrade --feature group.version=1 --feature transaction.version=2"),
    Case("kafka-features upgrade --feature group.version=9"),
    Case("kafka-features upgrade --feature group.version=x"),
    Case("kafka-features upgrade --feature nope.version=1 --dry-run"),
    Case("kafka-features disable --feature nope.version"),
    Case("kafka-features version-mapping"),
    Case("kafka-features version-mapping --release-version 4.0"),
    Case("kafka-features version-mapping --release-version 9.9"),
    Case("kafka-features feature-dependencies --feature eligible.leader.replicas.version=1 --feature metadata.version=30"),
    Case("kafka-features feature-dependencies --feature share.version=7"),
    Case("kafka-transactions find-hanging --broker NODE"),
    Case("kafka-transactions find-hanging"),
    Case("kafka-get-offsets --topic orders --time -6"),
    Case("kafka-get-offsets --topic orders --time soon"),
    Case("kafka-producer-perf-test --topic perf --num-records 1000 --record-size 100 --throughput -1"),
    Case("kafka-producer-perf-test --topic perf --num-records 10 --throughput -1"),
    Case("kafka-producer-perf-test --topic perf --num-records 100 --payload-monotonic --throughput 1000 --command-property acks=1"),
    Case("kafka-consumer-perf-test --topic perf --num-records 1000"),
    Case("kafka-consumer-perf-test --topic perf --messages 10", why=_OLD_NAME),
    Case("kafka-consumer-perf-test --topic perf --num-records 10 --hide-header"),
    Case("kafka-consumer-perf-test --topic perf --num-records 1000 --show-detailed-stats"),
    Case("kafka-e2e-latency --topic e2e --num-records 10 --producer-acks 1 --record-size 20"),
    Case("kafka-topics --create --topic shared"),
    Case("kafka-configs --alter --entity-type groups --entity-name s1 --add-config share.auto.offset.reset=earliest"),
    Case("kafka-configs --alter --entity-type groups --entity-name s1 --add-config share.auto.offset.reset=never"),
    Case("kafka-configs --alter --entity-type groups --entity-name s1 --add-config share.delivery.count.limit=1"),
    Case("kafka-configs --describe --entity-type groups --entity-name s1"),
    Case("kafka-console-producer --topic shared --sync", "one\ntwo\nthree\n"),
    Case("kafka-share-groups --list"),
    Case("kafka-share-groups --describe --group s1", exits=_EXIT_RESET),
    Case("kafka-share-groups --reset-offsets --group s1 --to-earliest --topic shared --dry-run"),
    Case("kafka-share-groups --reset-offsets --group s1 --to-earliest --topic shared"),
    Case("kafka-share-groups --reset-offsets --group s1 --to-earliest --topic shared --execute"),
    Case("kafka-share-groups --describe --group s1"),
    Case("kafka-console-share-consumer --topic shared --group s1 --timeout-ms 20000 --max-messages 3 --release"),
    Case(
        "kafka-console-share-consumer --topic shared --group s1 --timeout-ms 20000 --max-messages 1 --reject"
        " --formatter-property print.delivery=true --formatter-property print.key=true --formatter-property print.offset=true"
    ),
    Case("kafka-console-share-consumer --topic shared --group s1 --timeout-ms 9000 --max-messages 2 --formatter-property print.key=true"),
    Case("kafka-console-share-consumer --topic shared --group s1 --timeout-ms 300 --reject --release"),
    Case("kafka-console-share-consumer --topic shared --group s1 --command-property group.id=s2"),
    Case("kafka-share-groups --describe --group s1 --members"),
    Case("kafka-share-groups --describe --group s1 --state"),
    Case("kafka-share-groups --describe --group s1 --offsets --members"),
    Case("kafka-share-groups --describe --all-groups --verbose"),
    Case("kafka-share-groups --list --state"),
    Case("kafka-share-groups --list --state stable"),
    Case("kafka-share-groups --list --state wrong"),
    Case("kafka-groups --list --share"),
    Case("kafka-consumer-groups --describe --group s1", exits=_EXIT_RESET),
    Case("kafka-share-groups --reset-offsets --group s1 --to-latest --all-topics --execute"),
    Case("kafka-share-groups --reset-offsets --group s1 --to-datetime 2024-01-01T00:00:00.000 --topic shared:0 --dry-run"),
    Case("kafka-share-groups --reset-offsets --group s1 --to-latest --topic shared:7 --dry-run", exits=_EXIT_RESET),
    Case("kafka-share-groups --delete-offsets --group s1 --topic shared"),
    Case("kafka-share-groups --delete-offsets --group s1 --topic nope", exits=_EXIT_RESET),
    Case("kafka-share-groups --delete-offsets --group nope --topic shared", exits=_EXIT_RESET),
    Case("kafka-share-groups --describe --group s1"),
    Case("kafka-share-groups --delete --group s1 --group nope", exits=_EXIT_RESET),
    Case("kafka-share-groups --delete"),
    Case("kafka-share-groups"),
    Case("kafka-configs --alter --entity-type groups --entity-name s3 --add-config share.auto.offset.reset=earliest"),
    Case("kafka-share-consumer-perf-test --topic perf --group s3 --num-records 1000"),
    Case("kafka-acls --list"),
    Case("kafka-acls --add --allow-principal User:alice --operation Read --operation DescribeConfigs --topic orders"),
    Case("kafka-acls --add --allow-principal User:alice --operation Read --topic orders"),
    Case("kafka-acls --add --deny-principal User:bob --deny-host 10.0.0.1 --deny-host 10.0.0.2 --topic orders --group g1"),
    Case("kafka-acls --add --producer --idempotent --allow-principal User:alice --topic a --topic b --transactional-id pay"),
    Case("kafka-acls --add --consumer --allow-principal User:alice --allow-host 10.0.0.1 --topic a --group g1"),
    Case("kafka-acls --add --producer --consumer --allow-principal User:carol --topic both --group g2"),
    Case("kafka-acls --add --allow-principal User:* --operation All --topic ord --resource-pattern-type prefixed"),
    Case("kafka-acls --add --allow-principal User:alice --operation Describe --topic *"),
    Case("kafka-acls --add --allow-principal User:ops --operation ClusterAction --cluster"),
    Case("kafka-acls --add --allow-principal User:ops --operation Describe --delegation-token id"),
    Case("kafka-acls --add --allow-principal User:ops --operation CreateTokens --user-principal User:alice"),
    Case("kafka-acls --add --allow-principal User:ops --operation TwoPhaseCommit --transactional-id pay"),
    Case("kafka-acls --list"),
    Case("kafka-acls --list --topic orders"),
    Case("kafka-acls --list --topic orders --resource-pattern-type match"),
    Case("kafka-acls --list --topic ord --resource-pattern-type any"),
    Case("kafka-acls --list --topic nope"),
    Case("kafka-acls --list --cluster --group g1"),
    Case("kafka-acls --list --principal User:alice --principal User:absent"),
    Case("kafka-acls --add --allow-principal alice --topic orders", why=_TRACE),
    Case("kafka-acls --add --topic orders", why=_ENDED),
    Case("kafka-acls --add --allow-principal User:alice", why=_ENDED),
    Case("kafka-acls --add --allow-principal User:alice --operation Read --cluster", why=_ENDED),
    Case("kafka-acls --add --allow-principal User:alice --topic orders --resource-pattern-type match", why=_ENDED),
    Case("kafka-acls --add --producer --allow-principal User:alice --group g1"),
    Case("kafka-acls --add --consumer --allow-principal User:alice --topic a"),
    Case("kafka-acls --add --list"),
    Case("kafka-acls --list --producer"),
    Case("kafka-acls --remove --principal User:alice --topic a"),
    Case("kafka-acls --remove --force --allow-principal User:alice --operation Read --topic orders"),
    Case("kafka-acls --remove --force --producer --allow-principal User:alice --topic a"),
    Case("kafka-acls --remove --force --topic orders --resource-pattern-type match"),
    Case("kafka-acls --list"),
    Case("kafka-acls --remove --force --topic nope"),
)

FILES = {
    "topics.json": '{"topics":[{"topic":"nulls"}],"version":1}',
    "move.json": '{"version":1,"partitions":[{"topic":"nulls","partition":0,"replicas":[NODE]}]}',
    "away.json": '{"version":1,"partitions":[{"topic":"nulls","partition":0,"replicas":[77]}]}',
    "elect.json": '{"partitions":[{"topic":"nulls","partition":0},{"topic":"nulls","partition":5}]}',
    "reset.csv": "orders,0,1\norders,1,100\n",
    "reset2.csv": "g1,orders,0,1\ng2,orders,1,0\n",
    "delete.json": '{"partitions":[{"topic":"orders","partition":1,"offset":2},{"topic":"orders","partition":0,"offset":100}],"version":1}',
}
