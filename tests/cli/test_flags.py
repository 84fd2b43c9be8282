"""One option means one thing in all commands; where Kafka's tools give it two, the two are written down here."""

from __future__ import annotations

from collections import defaultdict

from ottla.cli.parser import build_parser
from tests.cli.every_command import COMMANDS

FORMS_OF_ONE_THING = {
    "--topic": {"NAME", "TOPIC", "REGEX", "TOPIC[:P,...]"},
    "--group": {"GROUP", "NAME"},
    "--broker-list": {"HOST:PORT[,...]", "ID,..."},
    "--delete-config": {"KEY", "K,..."},
    "--feature": {"NAME=LEVEL,...", "NAME,..."},
    "--offset": {"OFFSET", "START"},
    "--partition": {"N", "N,..."},
    "--threads": {"", "N"},
}
"""What stands after an option may be written in several ways, by the command."""

TWO_MEANINGS = {
    "--brokers": "a count for `start` and `dev`, as in the specification; elsewhere librdkafka's and rpk's name of the connection",
    "--config": "a file for what runs a broker, as for kafka-server-start; a topic's setting, as for kafka-topics",
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
