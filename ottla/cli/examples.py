"""The examples and tables at the end of each command's `--help`, also in docs/reference/cli.md. Tests run the examples.

Imported for help only. An example names its exit code if it is not 0. Commands that run until Ctrl-C are marked for the test, and so are
commands that need a ZooKeeper, a schema registry, Spark or another server. Tables describe arguments that have their own syntax.
"""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """A shell command and its purpose. `code` is its exit code in the tests. `needs` names a server or package that it needs."""

    line: str
    does: str
    code: int = 0
    is_endless: bool = False
    needs: str = ""


def _endless(line: str, does: str) -> Example:
    return Example(line, does, is_endless=True)


EXAMPLES = (
    _endless("ottla start", "a broker on localhost:9092, its data in ./ottla-data"),
    _endless("ottla start --config server.properties --set num.partitions=3", "a file, and one setting more"),
    _endless("ottla start --port 0 --ephemeral --seed-topic orders:3", "any free port, a topic, and no data left at the end"),
    _endless("ottla dev --seed-topic orders:3", "a broker for experiments, with a topic"),
    Example("ottla dev --brokers 3", "three brokers and a ZooKeeper on this machine", is_endless=True, needs="zookeeper"),
    Example("ottla stop", "the broker whose data is in ./ottla-data"),
    Example("ottla status -o json", "for programs; exit code 1 if no broker runs"),
    Example("ottla reset --yes", "removes what is in ./ottla-data"),
    Example("ottla snapshot backup", "of the broker whose data is in ./ottla-data"),
    Example("ottla restore backup --data-dir restored", "a new data directory, for `ottla start --data-dir restored`"),
    Example("ottla clone --topics orders --last 10m --data-dir local", "ten minutes of a topic, with the same offsets"),
    Example("ottla clone --topics orders --sample 1% --data-dir sample", "all records of one key in a hundred"),
    Example("ottla mirror old:9092 new:9092 --topics orders", "a topic of a running cluster, kept equal in another", needs="two clusters"),
    Example("ottla service print-unit --config server.properties > ottla.service", "a unit with the log.dirs of that file"),
    Example("ottla topic list", "names, partitions, replicas"),
    Example("ottla topic list --topic 'order.*' -o plain", "names alone, of some topics"),
    Example("ottla topic describe orders", "partitions, leaders, replicas, settings"),
    Example("ottla topic describe --under-replicated-partitions", "what lacks a replica"),
    Example("ottla topic create sales --partitions 6", "with six partitions"),
    Example("ottla topic create audit returns -c retention.ms=86400000", "two topics that keep their records for a day"),
    Example("ottla topic create latest -c cleanup.policy=compact --if-not-exists", "the last record of each key stays"),
    Example("ottla topic delete audit returns --yes", "two topics with their records"),
    Example("ottla topic delete --topic 'tmp-.*' --if-exists --dry-run", "shows what would be deleted"),
    Example("ottla topic alter sales --partitions 12 -c retention.ms=3600000", "more partitions, another setting"),
    Example("ottla topic config orders", "what differs from the defaults"),
    Example("ottla topic config orders --set retention.ms=3600000", "changes it"),
    Example("ottla topic add-partitions orders -n 2", "two more than now"),
    Example("ottla topic trim orders --before 1 --partition 0 --yes", "the records before offset 1 of one partition"),
    Example("ottla topic trim orders --before-time -7d --dry-run", "what is older than a week; shows it only"),
    Example("ottla topic clone orders copy --records", "the same partitions, settings and records"),
    Example("ottla topic analyze orders", "records, bytes, batches, codecs, rates"),
    Example("echo hello | ottla produce orders", "a record"),
    Example("printf 'alice:apples\\nbob:bread\\n' | ottla produce orders -K :", "keys and values"),
    Example("ottla produce orders -l orders.json -H source=shop", "the lines of a file, each with a header"),
    Example("printf 'alice;bread;trace:1\\n' | ottla produce orders --format '%k;%v;%h'", "a layout of your own"),
    Example("ottla produce orders -l orders.csv --input csv --key-field customer", "a table with a header row: a JSON object a row"),
    Example("ottla produce orders -l export.json --input records", "what `ottla consume -J` has printed"),
    Example("ottla produce orders --generate 1000 --rate 5000 -z zstd", "made-up records, compressed, at a rate"),
    Example("ottla produce orders -l orders.json --transactional-id etl-1", "all of them or none"),
    Example("ottla produce orders -l orders.json --schema order.proto --message Order", "JSON written as Protobuf"),
    Example(
        "ottla produce orders -l orders.json --registry http://localhost:8081 --schema order.avsc",
        "as Avro, its schema in a registry",
        needs="registry",
    ),
    Example("ottla consume orders --from-beginning -e", "all values, then stop"),
    _endless("ottla consume orders", "new records as they come, until Ctrl-C"),
    Example("ottla consume orders -e -f '%p/%o %k=%s %h\\n'", "a layout of your own"),
    Example("ottla consume orders -e -J", "a JSON object a line"),
    Example("ottla consume orders -o -2 -e", "the last two of each partition"),
    Example("ottla consume orders -o s@-1h -e", "what was written in the last hour"),
    Example("ottla consume orders -o 0:2 -o jsonl", "the offsets 0 and 1 of each partition; -o takes the form as well"),
    Example("ottla consume orders -o :end --output csv --columns offset,key,value.amount > orders.csv", "a table of what is there"),
    Example("ottla consume orders -e --where \"value.amount > 10 and key == 'alice'\"", "what fits"),
    Example("ottla consume orders -e --schema order.proto --message Order", "Protobuf as JSON", needs="schema"),
    Example("ottla consume orders -e --registry http://localhost:8081", "what a schema registry knows, as JSON", needs="registry"),
    Example("ottla consume orders -g billing --from-beginning -c 3", "three records as a member of a group, which moves on"),
    Example("ottla sql 'select key, count(*) from orders group by 1'", "a topic as a table of DuckDB"),
    Example("ottla sql 'select * from orders' --since -1h -o csv > orders.csv", "the last hour, as a file"),
    Example("ottla offsets orders", "the end of each partition"),
    Example("ottla offsets orders --time -1h", "the first record of the last hour"),
    Example("ottla records delete --offset-json-file delete.json --yes", "as kafka-delete-records takes it"),
    Example("ottla log dump data/orders-0 --print-data-log", "every file of a partition, without a broker"),
    Example("ottla log dump data/orders-0 --hex --max-bytes 200", "its bytes, with their meaning"),
    Example("ottla log scrub data", "every log in a log directory, also beside the broker"),
    Example("ottla log scrub data/orders-0 -o json", "one partition, for programs"),
    Example("ottla logdirs --topic-list orders", "sizes, and the free space of each disk"),
    Example("ottla group list --state Empty", "groups without members"),
    Example("ottla group describe billing", "offsets and lag"),
    Example("ottla group describe billing --members", "who reads what"),
    Example("ottla group lag --all-groups", "in records and in seconds"),
    Example("ottla group reset-offsets billing --topic orders --to-earliest", "shows the plan"),
    Example("ottla group reset-offsets billing --topic orders --shift-by -1 --execute", "one record back, in each partition"),
    Example("ottla group reset-offsets billing --all-topics --to-datetime 2026-01-31T12:00 --export", "the plan as CSV"),
    Example("ottla group delete billing --yes", "with its offsets"),
    Example("ottla group delete-offsets billing --topic orders:0 --yes", "those of one partition"),
    Example("ottla share-group list", "all share groups"),
    Example("ottla share-group describe workers", "start offsets and lag"),
    Example("ottla share-group reset-offsets workers --topic orders --to-earliest --execute", "from the oldest record on"),
    Example("ottla share-group delete workers --yes", "with its state"),
    Example("ottla share-group delete-offsets workers --topic orders --yes", "in one topic"),
    Example("ottla streams-group list", "all streams groups"),
    Example("ottla streams-group describe wordcount --members", "the tasks of each member", needs="streams"),
    Example("ottla streams-group topology wordcount", "if a member of Kafka Streams 4.4 has described it", needs="streams", code=1),
    Example("ottla streams-group reset-offsets wordcount --all-topics --to-earliest --execute", "of the source topics", needs="streams"),
    Example("ottla streams-group delete-offsets wordcount --topic lines --yes", "in one topic", needs="streams"),
    Example("ottla streams-group delete wordcount --yes", "with its committed offsets", needs="streams"),
    Example("ottla txn list --state Ongoing", "open transactions"),
    Example("ottla txn describe etl-1", "state, age, partitions"),
    Example("ottla txn describe-producers --topic orders --partition 0", "who has written there"),
    Example("ottla txn producers --topic orders --partition 0", "who has written there"),
    Example("ottla txn find-hanging", "looks through all topics; exit code 1 if there are any"),
    Example("ottla txn abort --transactional-id etl-1 --yes", "fences its producer and ends what it has begun"),
    Example("ottla txn prepared", "transactions that wait for an external coordinator"),
    Example("ottla txn finish etl-1 --commit", "here none is prepared, which is refused", code=1),
    Example("ottla txn why orders", "exit code 0: no open transaction blocks its readers"),
    Example("ottla txn why --topic orders --partition 0 -o json", "one partition, for programs"),
    Example("ottla config describe --topic orders", "what was set"),
    Example("ottla config describe --broker 0 --all", "every setting of a broker, and where it comes from"),
    Example("ottla config describe --principal User:alice", "credentials, quotas, access rules and tokens of a user"),
    Example("ottla config alter --topic orders --add-config retention.ms=3600000", "sets it"),
    Example("ottla config alter --topic orders --delete-config retention.ms", "back to the default"),
    Example("ottla config alter --user alice --add-config producer_byte_rate=1048576", "a quota"),
    Example("ottla config check server.properties", "before a broker starts with it"),
    Example("ottla config check server.properties --strict", "warnings are failures too, for CI"),
    Example("ottla config defaults log.retention.ms", "one setting"),
    Example("ottla acl list", "all rules"),
    Example("ottla acl list --topic orders --resource-pattern-type match", "the rules that hold for a topic, by name, prefix or '*'"),
    Example("ottla acl add --allow-principal User:alice --producer --topic orders", "what a producer needs on a topic"),
    Example("ottla acl add --allow-principal User:bob --consumer --topic orders --group billing", "what a consumer needs"),
    Example(
        "ottla acl add --allow-principal User:etl --topic shop- --resource-pattern-type prefixed",
        "everything, on topics whose names begin with shop-",
    ),
    Example("ottla acl remove --allow-principal User:alice --topic orders --yes", "what alice may do with a topic"),
    Example("ottla security check --topic orders", "what you may do, and which rules say so"),
    Example("ottla security check --topic orders --group billing --principal User:bob", "what another user may do"),
    Example("ottla user list", "who has which credentials"),
    Example("ottla user add alice --password-file password.txt", "SCRAM-SHA-256; without a file the password is asked for"),
    Example("echo secret | ottla user add bob --password-file - --mechanism SCRAM-SHA-512", "from a pipe"),
    Example("echo secret | ottla user create carol --password-stdin", "as user add"),
    Example("ottla user delete carol --yes", "as user remove"),
    Example("ottla user remove alice --yes", "with all credentials"),
    Example("ottla token list", "your own, and others that you may see", needs="login"),
    Example("ottla token create --lifetime P2D", "for two days, if it is renewed", needs="login"),
    Example("ottla token create --owner User:etl --renewer User:scheduler", "as another user, with the right to", needs="login"),
    Example("ottla token renew Sb0F5mSbQ0C6JdSBqkIK9A --for PT12H", "twelve hours from now on", needs="login"),
    Example("ottla token expire Sb0F5mSbQ0C6JdSBqkIK9A --yes", "logs out those who use it", needs="login"),
    Example("ottla cluster info", "brokers and topics, as kcat -L"),
    Example("ottla cluster status", "brokers, controller, healthy partitions"),
    Example("ottla cluster health", "exit code 1 if something is wrong"),
    Example("ottla cluster cluster-id", "its id"),
    Example("ottla cluster api-versions -o json", "what each broker speaks"),
    Example("ottla partitions generate --topics-to-move-json-file topics.json --broker-list 0", "a plan for the next command"),
    Example("ottla partitions drain --broker 0", "here no other broker takes the replicas, which is refused", code=1),
    Example("ottla partitions rebalance", "shows how replicas and leaders would be spread"),
    Example("ottla partitions reassign --reassignment-json-file plan.json", "shows what would move"),
    Example("ottla partitions reassign --reassignment-json-file plan.json --execute --yes", "moves it"),
    Example("ottla partitions list", "what moves now"),
    Example("ottla partitions verify --reassignment-json-file plan.json", "is it done?"),
    Example("ottla partitions cancel --reassignment-json-file plan.json --yes", "here nothing moves, which is refused", code=1),
    Example("ottla partitions elect --election-type preferred --topic orders --partition 0 --yes", "back to the first replica"),
    Example("ottla features describe", "levels now and possible"),
    Example("ottla features upgrade --feature group.version=1 --dry-run", "would it work?"),
    Example("ottla features downgrade --feature group.version=0 --dry-run", "would it work?", code=1),
    Example("ottla features disable --feature group.version --dry-run", "would it work?", code=1),
    Example("ottla features version-mapping --release-version 4.0", "the levels of a version"),
    Example("ottla features feature-dependencies --feature transaction.version=2", "what it needs"),
    Example("ottla bench producer --topic orders --num-records 1000 --record-size 100 --throughput -1", "as fast as possible"),
    Example("ottla bench consumer --topic orders --num-records 3", "reads three records"),
    Example("ottla bench share-consumer --topic orders --num-records 3 --group workers", "in a share group"),
    Example("ottla bench e2e --topic orders --num-records 20 --producer-acks all --record-size 10", "twenty round trips"),
    Example("ottla top", "until q is pressed", is_endless=True, needs="a terminal"),
    Example("ottla top --once --interval 1 -o json", "what happens within a second, for programs"),
    Example("ottla client-metrics list", "all subscriptions"),
    Example("ottla client-metrics describe", "what clients are asked for"),
    Example("ottla client-metrics alter all --metric '*' --interval-ms 60000", "every metric of every client, once a minute"),
    Example("ottla client-metrics alter etl --metric org.apache.kafka. --match client_id=etl-.*", "of clients with such ids"),
    Example("ottla client-metrics delete etl --yes", "its clients push no longer"),
    Example("ottla client-metrics show --from localhost:9404", "who pushes; needs ottla.metrics.listen", needs="metrics"),
    Example("ottla client-metrics show etl-1 --metric producer_ --from localhost:9404", "the metrics of one client", needs="metrics"),
    Example("ottla metrics kafka_log --from localhost:9404", "of the logs; needs ottla.metrics.listen", needs="metrics"),
    Example("ottla check eos --list", "what is checked"),
    Example("ottla check eos --only zombie-fenced", "some of it"),
    Example("ottla pipeline run pipeline.py", "until Ctrl-C or SIGTERM", is_endless=True, needs="spark"),
    Example("ottla pipeline run pipeline.py --once", "what there is, then stop", needs="spark"),
    Example("ottla pipeline status pipeline.py", "how far it is", needs="spark"),
    Example("ottla pipeline verify pipeline.py", "the proof, from the log", needs="spark"),
    Example("ottla pipeline compact pipeline.py", "joins the small files of its table", needs="spark"),
    Example("ottla why reader billing --seconds 1", "the evidence for each reason, and the command that mends it"),
    Example("ottla why writer orders --user dave", "leaders, replicas in sync, ACLs, quotas, disks", code=1),
    Example("ottla why partition orders", "brokers that are down, disks, reassignments"),
    _endless("ottla console", "pages about the cluster at localhost:9092, on http://127.0.0.1:8080"),
    Example("ottla doctor --offline", "open files, disk, clock"),
    Example("ottla doctor", "and: can clients reach the broker?"),
    Example("ottla wire 0012000000000001000474657374", "a request, field by field"),
    Example("ottla wire --response --api ApiVersions --version 0 12345678000000000000", "an answer; it does not say what it answers"),
    Example("ottla shims install bin", "bin/kafka-topics.sh and so on"),
    Example("ottla shims list", "the tools and their class names"),
    Example("ottla completion bash > ottla-completion.bash", "source this file in your .bashrc"),
    Example("ottla security cert", "an authority and a broker's certificate for this machine, in ./certs"),
    Example("ottla security cert broker alice --dir tls --host b.example.org", "for a broker elsewhere, and a client"),
    Example("ottla security cert broker --force", "a new one; the broker takes it over upon SIGHUP"),
    Example("ottla profile create local -b localhost:9092", "a name for a broker"),
    Example("ottla profile create prod bootstrap.servers=kafka:9093 security.protocol=SSL", "any client property"),
    Example("ottla profile set local client.id=laptop", "one property more"),
    Example("ottla profile use local", "from now on, where no -b is given"),
    Example("ottla profile list", "all of them; passwords are hidden"),
    Example("ottla profile delete prod", "forgets it"),
)


def examples_of(command: str) -> list[Example]:
    return [example for example in EXAMPLES if f"ottla {command} " in f"{example.line} "]


WAYS_OF_WRITING = "\\n newline, \\t tab, \\r return, \\\\ backslash, \\xNN a byte"


class HelpTable(NamedTuple):
    """A title, and rows of a word and its meaning."""

    title: str
    rows: tuple[tuple[str, str], ...]


VERBS = HelpTable(
    "verbs of -f",
    (
        ("%s, %v", "the value"),
        ("%k", "the key"),
        ("%v{hex}, %k{base64}", "the value, the key, in hexadecimal digits or in base64"),
        ("%h", "the headers: name=value,name=value"),
        ("%t", "the topic"),
        ("%p", "the partition"),
        ("%o", "the offset"),
        ("%T", "the timestamp, in milliseconds since 1970"),
        ("%S, %K", "the size of the value, of the key, in bytes; -1 if there is none"),
        ("%R", "the size of the value as four bytes, before a binary value"),
        ("%%", "a percent sign"),
        ("otherwise", WAYS_OF_WRITING),
    ),
)
READ_VERBS = HelpTable(
    "verbs of --format",
    (
        ("%s, %v", "the value"),
        ("%k", "the key"),
        ("%v{hex}, %k{base64}", "the value, the key, in hexadecimal digits or in base64"),
        ("%h", "the headers: name:value,name:value"),
        ("%%", "a percent sign"),
        ("otherwise", f"text that has to stand there; {WAYS_OF_WRITING}"),
    ),
)
STARTS = HelpTable(
    "where -o begins and ends",
    (
        ("beginning, end", "the oldest record, the next one"),
        ("stored", "the committed offset of the group (-g)"),
        ("N, -N", "offset N; N records before the end"),
        ("s@TIME, @TIME", "the first record at that time or later"),
        ("e@TIME", "the end; another -o may be the start"),
        (":end", "everything that is there now"),
        ("A:B, A:, :B", "from offset A up to B, but without B"),
        ("A-B", "from offset A to B, both included"),
        ("@TIME:TIME, @:TIME", "between two times, without the second: @-1h:-1s leaves out what is younger than a second"),
        ("json, csv ...", "not a start but the form, as with --output"),
        ("TIME", "2026-01-31, 2026-01-31T12:00:00Z, milliseconds since 1970, -90s, -15m, -1h, -7d"),
    ),
)
WHERE = HelpTable(
    "expressions of --where",
    (
        ("key, value", "parsed if it is JSON, else text"),
        ("topic, partition, offset, timestamp, headers", "the record's other parts"),
        ("value.user.id, headers['x'], value[0]", "parts of a part; null if there is none"),
        ("== != < <= > >=", "comparison; false for what cannot be compared"),
        ("timestamp >= '2026-01-31'", "a text beside timestamp is a TIME as after -o @"),
        ("in, not in", "value.country in ['de', 'fr'], 'x' in value"),
        ("and, or, not, ( )", "joined conditions"),
        ("+ - * / %", "arithmetic"),
        ("'text', 10, 1.5, true, false, null", "constants"),
    ),
)

INPUTS = HelpTable(
    "forms of --input",
    (
        ("lines", "a value a line, or what -K, --format and the properties make of a line"),
        ("csv", 'a header row, then a JSON object a row: {"column":cell}; numbers, true, false are such, an empty cell is null'),
        ("", "what consume --output csv prints, known by its header row, gives the records back; an empty key or value is null"),
        ("json", "arrays, or values one after the other: a record each, with every digit of its numbers"),
        ("records", "what consume -J and --output json print, with keys, headers and timestamps"),
    ),
)

TABLES: dict[str, tuple[HelpTable, ...]] = {"consume": (VERBS, STARTS, WHERE), "produce": (READ_VERBS, INPUTS)}


def after_options(command: str) -> str:
    from ottla.cli.examples import TABLES, examples_of

    lines = []
    for table in TABLES.get(command, ()):
        width = max(len(word) for word, _ in table.rows) + 2
        lines += ["", f"{table.title}:", *(f"  {word.ljust(width)}{meaning}" for word, meaning in table.rows)]
    examples = examples_of(command)
    if examples:
        lines += ["", "examples:"]
    for example in examples:
        lines += [f"  # {example.does}", f"  {example.line}"]
    return "\n".join(lines) + "\n" if lines else ""
