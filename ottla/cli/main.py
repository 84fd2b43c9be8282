"""`ottla`: finds the command, builds the options of that one alone, runs it, and turns every failure into one line and an exit code.

Exit codes: 0 done, 1 refused by Kafka or failed, 2 wrong usage, 3 no connection or no answer in time, 130 Ctrl-C. A closed pipe
(`| head`) ends the program in silence. Modules of commands are imported when their command is called, so `ottla --help` imports none.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from ottla.base.errors import ApiError, OttlaError
from ottla.cli.command import Command, Refused, UsageError

EXIT_DONE = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_NO_CONNECTION = 3
EXIT_INTERRUPTED = 130


class Group(NamedTuple):
    """A word after `ottla`: the module that has its COMMAND or COMMANDS, and one sentence."""

    module: str
    help: str
    section: str


GROUPS: dict[str, Group] = {
    "start": Group("broker.server", "Run a broker until Ctrl-C.", "Servers"),
    "dev": Group("broker.server", "Run a broker on data that goes with it.", "Servers"),
    "stop": Group("broker.server", "Stop the broker of a data directory.", "Servers"),
    "status": Group("broker.server", "Does a broker run in a data directory, and does it answer?", "Servers"),
    "reset": Group("broker.server", "Remove all data of a broker that does not run.", "Servers"),
    "service": Group("broker.service", "The systemd unit of a broker.", "Servers"),
    "topic": Group("topics.topic", "Topics: list, describe, create, alter, delete.", "Topics and records"),
    "produce": Group("records.produce", "Write records from standard input or a file.", "Topics and records"),
    "consume": Group("records.consume", "Read records and print them.", "Topics and records"),
    "offsets": Group("records.offsets", "Offsets of each partition: the end, the start, or at a time.", "Topics and records"),
    "records": Group("records.records", "Delete records.", "Topics and records"),
    "log": Group("inspect.log", "What stands in the files of a log, offline.", "Topics and records"),
    "logdirs": Group("cluster.logdirs", "Log directories of the brokers: sizes and room.", "Topics and records"),
    "group": Group("groups.group", "Consumer groups: list, describe, lag, reset offsets.", "Groups"),
    "share-group": Group("groups.share_group", "Share groups: list, describe, reset offsets, delete.", "Groups"),
    "txn": Group("transactions.txn", "Transactions: list, describe, find what hangs, abort.", "Transactions"),
    "config": Group("cluster.config", "Settings of topics, brokers and groups, quotas; check a file.", "Settings and access"),
    "user": Group("cluster.user", "SCRAM users of a broker that keeps them.", "Settings and access"),
    "cluster": Group("cluster.cluster", "Brokers, health, versions.", "Cluster"),
    "partitions": Group("cluster.partitions", "Move replicas, choose leaders.", "Cluster"),
    "features": Group("cluster.features", "Feature levels.", "Cluster"),
    "bench": Group("bench.bench", "Measure producing, consuming, and the way there and back.", "Measuring"),
    "metrics": Group("inspect.metrics", "One scrape of a broker's metrics.", "Measuring"),
    "check": Group("check.check", "Check any Kafka-compatible broker: the promises of exactly-once.", "Measuring"),
    "doctor": Group("check.doctor", "Is this machine fit for a broker, and can clients reach it?", "Ours only"),
    "wire": Group("inspect.wire", "Explain a frame of the protocol, in hex or from a recording of packets.", "Ours only"),
    "shims": Group("kafka_tools.shims", "Kafka's tools by their own names: kafka-topics and so on.", "This program"),
    "completion": Group("completion", "Let the shell complete commands, topics and groups.", "This program"),
    "profile": Group("profiles", "Named connections.", "This program"),
}

ABSENT: dict[str, str] = {
    "acl": "access control lists",
    "console": "the console",
    "pipeline": "Spark pipelines",
}
"""Commands of parts that do not exist yet: one line instead of a guess at what was meant."""


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, which takes -1h and -5 for values: no option of ours begins with a digit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._negative_number_matcher = re.compile(r"^-\d")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """A value that is `--`, as in `--state=--`, is a text: argparse itself makes an empty list of it."""
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; gives its exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return EXIT_DONE
    except OSError as error:
        _forget_output()
        where = error.filename or "the output"
        sys.stderr.write(f"error: {where}: {(error.strerror or str(error)).lower()}\n")
        return EXIT_REFUSED


def _nothing() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedRandom(io.FileIO(os.devnull, "r+")), encoding="utf-8")


def _prepare_streams() -> None:
    """Three streams that can be used, whatever the caller has closed (`>&-`), and a stdout that writes all or fails."""
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            continue  # a socket must not become number 1
        os.close(descriptor)
        sys.stdin, sys.stdout, sys.stderr = (stream or _nothing() for stream in (sys.stdin, sys.stdout, sys.stderr))
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    if isinstance(sys.stdout.buffer, io.RawIOBase):
        # PYTHONUNBUFFERED: one system call a record, and what a closing pipe did not take would be lost without an error.
        buffered = io.BufferedWriter(sys.stdout.buffer)
        sys.stdout = io.TextIOWrapper(buffered, encoding=sys.stdout.encoding, line_buffering=True)
    # What a terminal or a file cannot show becomes a question mark: names and records come from strangers.
    sys.stdout.reconfigure(errors="replace")


def _forget_output() -> None:
    """Nobody reads any more, or nothing can be written: what is left in the buffer must not be tried again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: list[str]) -> int:
    try:
        if not argv or argv[0] in ("-h", "--help", "help"):
            sys.stdout.write(overview())
            return EXIT_DONE if argv else EXIT_USAGE
        if argv[0] in ("-V", "--version"):
            from ottla._version import __version__

            sys.stdout.write(f"ottla {__version__}\n")
            return EXIT_DONE
        if argv[0] == "--help-json":
            from ottla.cli.describe import help_json

            sys.stdout.write(help_json())
            return EXIT_DONE
        if argv[0] == "complete-words":
            from ottla.cli.completion import complete

            return complete(argv[1:])
        return run_command(argv)
    except UsageError as error:
        return _tell(argv, str(error), "USAGE", EXIT_USAGE)
    except Refused as error:
        return _tell(argv, str(error), error.name, EXIT_REFUSED)


def run_command(argv: list[str], overrides: Mapping[str, Any] | None = None) -> int:
    """`topic list -b ...` and so on. `overrides` are set on the parsed arguments: a shim says so by which name it was called."""
    name = argv[0]
    if name.startswith(("kafka-", "connect-", "zookeeper-", "trogdor")):
        from ottla.cli.kafka_tools.shims import run

        return run(argv)
    group = GROUPS.get(name)
    if name in ABSENT:
        raise Refused(f"this version does not offer {ABSENT[name]}", "UNSUPPORTED_VERSION")
    if group is None:
        raise UsageError(f"no command {name!r}{_nearest(name, GROUPS)}; see `ottla --help`")
    module = importlib.import_module(f"ottla.cli.{group.module}")
    commands: dict[str, Command] | None = getattr(module, "COMMANDS", None)
    if commands is None:
        return call(f"ottla {name}", module.COMMAND, argv[1:], overrides)
    if name in commands:  # several words of one module, such as start and dev
        return call(f"ottla {name}", commands[name], argv[1:], overrides)
    verb = argv[1] if len(argv) > 1 else "--help"
    if verb in ("-h", "--help"):
        sys.stdout.write(group_overview(name, group, commands))
        return EXIT_DONE if len(argv) > 1 else EXIT_USAGE
    if verb not in commands:
        raise UsageError(f"no command {name + ' ' + verb!r}{_nearest(verb, commands)}; see `ottla {name} --help`")
    return call(f"ottla {name} {verb}", commands[verb], argv[2:], overrides)


def build_parser(program: str, command: Command) -> Parser:
    """The parser of one command, with the options that all have."""
    from ottla.cli.options import add_connection_options, add_output_options

    parser = Parser(prog=program, description=command.help, allow_abbrev=False)
    command.add_arguments(parser)
    if command.has_connection:
        add_connection_options(parser)
    add_output_options(parser, command)
    return parser


def call(program: str, command: Command, argv: list[str], overrides: Mapping[str, Any] | None) -> int:
    """Parses the words after a command's name and runs it."""
    try:
        args = build_parser(program, command).parse_args(argv)
    except SystemExit as stop:  # argparse ends the program after --help
        return int(stop.code or 0)
    for key, value in (overrides or {}).items():
        setattr(args, key, value)
    if command.may_watch and args.watch is not None:
        return _watch(command, args, argv)
    return _guarded(command, args, argv)


def _guarded(command: Command, args: argparse.Namespace, argv: list[str]) -> int:
    """Runs a command; what goes wrong becomes a line and a code. Broken invariants are bugs and stay tracebacks."""
    try:
        return command.run(args)
    except UsageError as error:
        return _tell(argv, str(error), "USAGE", EXIT_USAGE)
    except Refused as error:
        return _tell(argv, str(error), error.name, EXIT_REFUSED)
    except ApiError as error:
        return _tell(argv, f"{error.message} ({error.code.name})" if error.message else error.code.name, error.code.name, EXIT_REFUSED)
    except OttlaError as error:
        return _other_failure(argv, error)
    except (struct.error, OverflowError) as error:
        return _tell(argv, f"a number does not fit into Kafka's protocol: {error}", "USAGE", EXIT_USAGE)
    except UnicodeEncodeError as error:
        # Bytes of an argument that are no UTF-8: good for the name of a file, but not for what Kafka carries.
        return _tell(argv, f"{error.object[:80]!r} is not text: it holds bytes that are no UTF-8", "USAGE", EXIT_USAGE)


def _other_failure(argv: list[str], error: OttlaError) -> int:
    from ottla.client.errors import ClientError, ConnectError, RequestTimeoutError

    if not isinstance(error, ClientError):
        return _tell(argv, str(error), type(error).__name__, EXIT_REFUSED)
    message = str(error)
    if isinstance(error, ConnectError) and "cannot reach" in message:
        message += "; start a broker with `ottla start`, or name another with -b HOST:PORT"
    name = "REQUEST_TIMED_OUT" if isinstance(error, RequestTimeoutError) else "NETWORK_EXCEPTION"
    return _tell(argv, message, name, EXIT_NO_CONNECTION)


def _watch(command: Command, args: argparse.Namespace, argv: list[str]) -> int:
    """The command again and again; a failure is shown and the next round tries anew."""
    import time

    while True:
        if sys.stdout.isatty():
            sys.stdout.write("\x1b[H\x1b[2J")
        _guarded(command, args, argv)
        sys.stdout.flush()
        time.sleep(max(0.1, args.watch))


def _tell(argv: list[str], message: str, name: str, code: int) -> int:
    from ottla.cli.output import Output, wants_colour

    sys.stdout.flush()
    output = Output(_form_of(argv), has_colour=wants_colour(sys.stderr, is_forbidden="--no-color" in argv))
    output.error(message, name)
    return code


def _form_of(argv: Sequence[str]) -> str:
    """The form of output that was asked for, even when the arguments could not be parsed."""
    for position, word in enumerate(argv):
        if word in ("-o", "--output") and argv[position + 1 : position + 2] and argv[position + 1] in ("json", "jsonl", "yaml"):
            return argv[position + 1]
        if word.startswith("--output=") and word[9:] in ("json", "jsonl", "yaml"):
            return word[9:]
        if word == "-J":
            return "json"
    return "table"


def overview() -> str:
    """What `ottla --help` says."""
    lines = ["usage: ottla COMMAND [OPTIONS]", "", "Kafka's system in Python: a broker, and tools for any Kafka-compatible broker."]
    width = max(map(len, GROUPS)) + 2
    for section in dict.fromkeys(group.section for group in GROUPS.values()):
        lines += ["", f"{section}:"]
        lines += [f"  {name.ljust(width)}{group.help}" for name, group in GROUPS.items() if group.section == section]
    lines += [
        "",
        "Each command: --help. All of them as JSON: ottla --help-json. Kafka's names work too: ottla kafka-topics --list ...",
        "A broker is named by -b HOST:PORT, by KAFKA_BOOTSTRAP_SERVERS, or by a profile; else localhost:9092.",
    ]
    return "\n".join(lines) + "\n"


def group_overview(name: str, group: Group, commands: Mapping[str, Command]) -> str:
    width = max(map(len, commands)) + 2
    lines = [f"usage: ottla {name} COMMAND [OPTIONS]", "", group.help, ""]
    lines += [f"  {verb.ljust(width)}{command.help}" for verb, command in commands.items()]
    return "\n".join([*lines, "", f"Options: ottla {name} COMMAND --help"]) + "\n"


def _nearest(word: str, known: Mapping[str, object]) -> str:
    from ottla.client.cluster import nearest_hint

    return nearest_hint(word, known)


if __name__ == "__main__":
    sys.exit(main())
