"""Wrong usage: one line that says why, nothing on standard output, exit code 2."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict

import pytest

from ottla.cli.parser import build_parser
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla
from tests.cli.every_command import COMMANDS

WRONG = (
    ("topik", "no command 'topik'; did you mean 'topic'? See `ottla --help`."),
    ("rset", "no command 'rset'; see `ottla --help`"),
    ("topic tim", "no command 'topic tim'; see `ottla topic --help`"),
    ("topic delet orders", "no command 'topic delet'; see `ottla topic --help`"),
    ("profile delet", "no command 'profile delet'; see `ottla profile --help`"),
    ("acl rn", "no command 'acl rn'; see `ottla acl --help`"),
    ("topic config t --delet a", "unrecognized arguments: --delet a; see `ottla topic config --help`"),
    ("kafka-delete-record", "no tool 'kafka-delete-record' here; see `ottla shims list`"),
    ("-C -t orders", "no option '-C' before a command; kcat's -C is `ottla consume`; see `ottla --help`"),
    ("-t orders -P", "no option '-t' before a command; kcat's -P is `ottla produce`; see `ottla --help`"),
    ("-b a:1 -L", "no option '-L' before a command; kcat's -L is `ottla topic describe`; see `ottla --help`"),
    ("log ls", "no command 'log ls'; see `ottla log --help`"),
    ("help topik", "no command 'topik'; did you mean 'topic'? See `ottla --help`."),
    ("topic lst", "no command 'topic lst'; did you mean 'list'? See `ottla topic --help`."),
    ("topic list --nope", "unrecognized arguments: --nope; see `ottla topic list --help`"),
    ("topic create a --partitons=3 -z", "arguments: --partitons=3 -z; did you mean --partitions? See `ottla topic create --help`."),
    ("topic list -o xml", "invalid choice: 'xml'"),
    ("topic list -b host:port:x", "host:port:x"),
    ("topic list -b ''", "no broker is named"),
    ("topic list -X nonsense", "'nonsense' is not KEY=VALUE"),
    ("topic list --command-config no-such-file", "cannot read no-such-file"),
    ("topic list --profile none", "no profile 'none'"),
    ("topic list -X request.timeout.ms=soon", "soon"),
    ("-b a:1 topic list -b b:1", "-b is a:1 before the command and b:1 after it; give it once"),
    ("-o json topic list -o table", "-o is json before the command and table after it; give it once"),
    ("--profile a topic list --profile=b", "--profile is a before the command and b after it; give it once"),
    ("-b a:1 profile list", "ottla profile list takes no -b; see `ottla profile list --help`"),
    ("-o json completion bash", "ottla completion takes no -o; see `ottla completion --help`"),
    ("-b a:1 dev --brokers 3", "ottla dev takes no -b; see `ottla dev --help`"),
    ("--watch 1 produce t", "ottla produce takes no --watch; see `ottla produce --help`"),
    ("-o yaml consume t", "argument -o/--output: invalid choice: 'yaml' (choose from json, jsonl, csv, plain)"),
    ("-o csv consume t -J", "two forms of output are named: csv, jsonl"),
    ("-o xml topic list", "invalid choice: 'xml'"),
    ("-b", "expected one argument"),
    ("--nope topic list", "no option '--nope' before a command; see `ottla --help`"),
    ("-q lst", "no command 'lst'; did you mean"),
    ("topic create", "name a topic"),
    ("topic create t -p 0", "--partitions must be 1 or more"),
    ("topic create t --replica-assignment 0,x", "is not BROKER:BROKER"),
    ("topic create t --replica-assignment 0:0", "names a broker twice"),
    ("topic create t --replica-assignment 0 -p 1", "leave out --partitions"),
    ("topic create t -c retention", "is not KEY=VALUE"),
    ("topic alter t", "give what to alter"),
    ("topic delete", "name the topics to delete"),
    ("topic add-partitions t -n 0", "--count must be 1 or more"),
    ("topic clone t t", "cannot be cloned to itself"),
    ("topic trim t --before 1 --before-time -1h", "exclude each other"),
    ("topic list --topic '('", "is not a regular expression"),
    ("acl add --allow-principal User:a", "at least one resource"),
    ("acl add --topic t", "--allow-principal, --deny-principal"),
    ("acl add --topic t --allow-principal alice", "write User:alice"),
    ("acl add --topic t --allow-principal User:", "principalType:principalName"),
    ("acl add --topic t --allow-principal User:a --operation Reed", "unknown operation 'Reed'; there are All, Read"),
    ("acl add --topic t --allow-principal User:a --operation ClusterAction", "ResourceType TOPIC only supports"),
    ("acl add --cluster --allow-principal User:a --operation Read", "ResourceType CLUSTER only supports"),
    ("acl add --topic t --allow-principal User:a --resource-pattern-type match", "value of 'MATCH' is not valid"),
    ("acl add --topic t --allow-principal User:a --resource-pattern-type regex", "any, match, literal, prefixed"),
    ("acl add --producer --group g --allow-principal User:a", "With --producer you must specify a --topic"),
    ("acl add --consumer --topic t --allow-principal User:a", "With --consumer you must specify"),
    ("acl add --idempotent --topic t --allow-principal User:a", "only available if --producer is set"),
    ("acl add --producer --topic t --operation Read --allow-principal User:a", 'used with option "[operation]"'),
    ("acl list --principal alice", "write User:alice"),
    ("features upgrade", ""),
    ("features upgrade --feature x", ""),
    ("features upgrade --feature x=1 --release-version 4.0", ""),
    ("features upgrade --release-version 9.9", ""),
    ("features downgrade", ""),
    ("features disable --feature x=1", ""),
    ("bench producer --topic t --num-records 1", "give exactly one of --record-size"),
    ("bench producer --topic t --num-records 0 --record-size 1", "--num-records must be 1 or more"),
    ("bench producer --topic t --num-records 1 --record-size 0", "--record-size must be 1 or more"),
    ("bench producer --topic t --num-records 1 --payload-file /nowhere", "cannot read /nowhere"),
    ("bench consumer --num-records 1", "give --topic or --include"),
    ("bench e2e --topic t --num-records 0", "must be 1 or more"),
    ("config describe", ""),
    ("config describe --topic a --broker 1", ""),
    ("config describe --entity-type topic", ""),
    ("config describe --broker one", ""),
    ("config alter --topic a", ""),
    ("config alter --topic a --add-config x", ""),
    ("config alter --topic a --add-config x=1 --delete-config x", ""),
    ("config alter --entity-type topics --add-config x=1", ""),
    ("config alter --topic a --add-config x=1 --add-config-file no-such-file", ""),
    ("config describe --entity-type users --user a", ""),
    ("config describe --entity-name a", ""),
    ("config describe --entity-type users --entity-name a --entity-name b", ""),
    ("config describe --user a --topic t", ""),
    ("config describe --topic ''", ""),
    ("config describe --ip 'no such host'", ""),
    ("config check no-such-file", ""),
    ("config defaults num.partition", ""),
    ("kafka-topic", "no tool 'kafka-topic' here; did you mean 'kafka-topics'? See `ottla shims list`."),
    ("kafka-run-class", "name a class"),
    ("kafka-run-class kafka.tools.GetOffsetShel", "did you mean 'kafka.tools.GetOffsetShell'"),
    ("kafka-topics --list --create", "exactly one action: --list, --describe, --create, --alter or --delete"),
    ("kafka-topics --describe --topic a --topic b", "found multiple arguments for option topic"),
    ("kafka-topics --create", 'Missing required argument "[topic]"'),
    ("kafka-consumer-groups --list --state Nonsense", "Invalid state list 'Nonsense'. Valid states are: "),
    ("kafka-consumer-groups --reset-offsets --group g --to-latest", "give topics"),
    ("kafka-consumer-groups --reset-offsets --group g --all-topics --to-latest --to-current", "exclude each other"),
    ("kafka-configs --topic t", "exactly one action: --describe, --alter"),
    ("kafka-log-dirs", 'Missing required argument "[describe]"'),
    ("kafka-transactions --bootstrap-server list", "kafka-transactions needs one of list, describe"),
    ("kafka-reassign-partitions --generate", "required: --topics-to-move-json-file, --broker-list"),
    ("kafka-reassign-partitions --list --verify", "exactly one action"),
    ("kafka-server-start -daemon", "kafka-server-start [-daemon] FILE"),
    ("kafka-delegation-tokens", "exactly one action: --create, --renew, --expire or --describe"),
    ("kafka-delegation-tokens --create --describe", "exactly one action"),
    ("kafka-delegation-tokens --create", 'Missing required argument "[max-life-time-period]"'),
    ("kafka-delegation-tokens --renew --renew-time-period 1", 'Missing required argument "[hmac]"'),
    ("kafka-delegation-tokens --expire --hmac YQ==", 'Missing required argument "[expiry-time-period]"'),
    ("kafka-delegation-tokens --describe --hmac YQ==", 'Option "[describe]" can\'t be used with option "[hmac]"'),
    ("kafka-delegation-tokens --create --max-life-time-period 1 --renew-time-period 1", 'can\'t be used with option "[renew-time-period]"'),
    ("kafka-client-metrics", "exactly one action: --alter, --delete, --describe or --list"),
    ("kafka-client-metrics --alter", "One of --name or --generate-name must be specified with --alter."),
    ("kafka-client-metrics --alter --name x --generate-name", "One of --name or --generate-name must be specified with --alter."),
    ("kafka-client-metrics --delete", "A client metrics resource name must be specified with --delete."),
    ("kafka-client-metrics --list --name x", 'Option "[list]" can\'t be used with option "[name]"'),
    ("kafka-client-metrics --describe --interval 1", 'Option "[describe]" can\'t be used with option "[interval]"'),
    ("kafka-acls", "exactly one action: --list, --add or --remove"),
    ("kafka-acls --list --add", "exactly one action"),
    ("kafka-acls --add --topic t --allow-principal User:a --principal User:b", "only available if --list is set"),
    ("kafka-acls --list --producer", 'Option "[list]" can\'t be used with option "[producer]"'),
    ("kafka-acls --list --allow-host a", 'can\'t be used with option "[allow-host]"'),
    ("kafka-acls --add --topic t --allow-principal alice", "principalType:principalName but got alice"),
    ("consume t --share-group g --group h", "--group does not go with --share-group"),
    ("consume t --share-group g --from-beginning", "are settings of the group"),
    ("consume t --share-group g --accept --reject", "--accept and --reject exclude each other"),
    ("consume t --release", "add --share-group GROUP"),
    ("consume t --share-group g --grep x", "is printed and acknowledged"),
    ("consume t --share-group g -e", "its members partitions"),
    ("kafka-share-groups", ""),
    ("kafka-share-groups --describe", ""),
    ("kafka-share-groups --describe --group g --all-groups", ""),
    ("kafka-share-groups --delete", ""),
    ("kafka-share-groups --delete-offsets --group g", ""),
    ("kafka-share-groups --reset-offsets --group g --topic t --to-latest", ""),
    ("kafka-share-groups --reset-offsets --group g --topic t --execute", ""),
    ("kafka-share-groups --reset-offsets --group g --group h --topic t --execute --to-latest", ""),
    ("kafka-share-groups --list --state wrong", ""),
)
"""A line, and a part of the message."""


@pytest.mark.parametrize(("line", "message"), WRONG)
def test_wrong_usage(offline: Ottla, broker: Broker, monkeypatch: pytest.MonkeyPatch, line: str, message: str) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_server)
    result = offline(*shlex.split(line))
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result
    assert result.err.startswith(("error: ", '{"error"'))
    assert message in (json.loads(result.err)["error"]["message"] if result.err.startswith("{") else result.err)


# One option means one thing in all commands; where Kafka's tools give it two, the two are written down here


FORMS_OF_ONE_THING = {
    "--topic": {"NAME", "TOPIC", "REGEX", "TOPIC[:P,...]", "TOPIC,..."},
    "--group": {"GROUP", "NAME", "GROUP,..."},
    "--broker": {"ID,...", "NAME"},
    "--broker-list": {"HOST:PORT[,...]", "ID,..."},
    "--delete-config": {"KEY", "K,..."},
    "--schema": {"FILE", "TOPIC=FILE"},
    "--message": {"NAME", "TOPIC=NAME"},
    "--feature": {"NAME=LEVEL,...", "NAME,..."},
    "--offset": {"OFFSET", "START"},
    "--partition": {"N", "N,..."},
    "--threads": {"", "N"},
    "--watch": {"", "SECS"},
}
"""What stands after an option may be written in several ways, by the command."""

TWO_MEANINGS = {
    "--brokers": "a count for `start` and `dev`, as in the specification; elsewhere librdkafka's and rpk's name of the connection",
    "--config": "a file for what runs a broker, as for kafka-server-start; a topic's setting, as for kafka-topics",
    "--offsets": "a range for `clone`; elsewhere to show offsets, as for kafka-consumer-groups",
    "--partitions": "how many, as for kafka-topics; which, as for kafka-get-offsets",
    "--state": "which states, or to show the state, as for kafka-consumer-groups",
    "-c": "--config, as for kafka-topics in short; --max-messages of kcat and kafka-console-consumer",
    "-o": "--output; for consume kcat's and rpk's offset, which takes the name of a form as well",
    "-p": "--partitions, how many; --partition of kcat and rpk",
}
SHORT_FOR = {
    "-c": {"--set", "--config", "--max-messages"},
    "-o": {"--output", "--offset"},
    "-p": {"--partitions", "--partition"},
    "-n": {"--count", "--max-messages"},
}
"""Short options that are short for more than one long one. `-n` is a count in both."""


def options() -> dict[str, dict[str, list[str]]]:
    """Each option, with what it takes (nothing for a flag), or for a short one what it is short for, and the commands where it does."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for words, command in COMMANDS.items():
        for action in build_parser(f"ottla {words}", command)._actions:
            long = next((option for option in action.option_strings if option.startswith("--")), "")
            for option in action.option_strings:
                takes = "" if action.nargs == 0 else str(action.metavar or "")
                found[option][takes if option.startswith("--") else long].append(words)
    return found


OPTIONS = options()


def meanings(is_long: bool) -> dict[str, set[str]]:
    """The options with more than one."""
    return {name: set(found) for name, found in OPTIONS.items() if len(found) > 1 and name.startswith("--") is is_long}


def test_a_long_option_takes_one_thing() -> None:
    several = {name: found for name, found in meanings(is_long=True).items() if name not in TWO_MEANINGS}
    assert {name: found for name, found in several.items() if not found <= FORMS_OF_ONE_THING.get(name, set())} == {}


def test_a_short_option_is_short_for_one_long_one() -> None:
    several = meanings(is_long=False)
    assert several == SHORT_FOR
    assert set(several) - set(TWO_MEANINGS) == {"-n"}


def test_what_is_written_down_has_two_meanings() -> None:
    several = {**meanings(is_long=True), **meanings(is_long=False)}
    assert [name for name in (*FORMS_OF_ONE_THING, *TWO_MEANINGS) if name not in several] == []
