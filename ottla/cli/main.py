"""Runs a command line of `ottla`: finds the command, parses its options, runs it, and converts a failure to one line and an exit code.

Exit codes: 0 done, 1 refused by Kafka or failed, 2 wrong usage, 3 no connection or no answer in time, 130 Ctrl-C. A closed pipe
(`| head`) ends the program without an error. Modules of commands are imported when their command is called, so `ottla --help` imports none.
"""

from __future__ import annotations

import io
import os
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ApiError, ErrorCode, OttlaError
from ottla.cli.command import Args, Command, NotReached, Refused, UsageError, pointing_to
from ottla.cli.command_groups import GROUPS, canonical, find_command, load_commands, suggested

if TYPE_CHECKING:
    from ottla.cli.parser import Leading

    Printers = Mapping[Any, Callable[[Any], None]]

EXIT_DONE = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_NO_CONNECTION = 3
EXIT_INTERRUPTED = 130
HINTS = {
    ErrorCode.SECURITY_DISABLED: "; start the broker with --acls, or with authorizer.class.name=acl",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "; log in with a password or a certificate, not with a token",
}
"""Advice by error code. It is appended to the message of an error that a command did not handle."""
OF_KCAT = {"-C": "ottla consume", "-P": "ottla produce", "-L": "ottla topic describe", "-Q": "ottla offsets"}
"""Commands for kcat's modes."""
STRUCTURED = ("json", "jsonl", "yaml")
"""Forms of output that print an error as an object."""


def main(arguments: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    try:
        code = _guarded(argv, lambda: _run(argv))
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return EXIT_DONE
    except OSError as error:
        _discard_output()
        where = error.filename or "the output"
        return _report(argv, f"{where}: {(error.strerror or str(error)).lower()}", type(error).__name__, EXIT_REFUSED)


def _prepare_streams() -> None:
    """Replaces standard streams that the caller has closed (`>&-`), and buffers stdout, so that each write is complete or fails."""
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            continue  # occupies the free numbers up to 2: a socket with the number 1 would get the output to stdout
        os.close(descriptor)
        null = io.TextIOWrapper(io.BufferedRandom(io.FileIO(os.devnull, "r+")), encoding="utf-8")
        sys.stdin, sys.stdout, sys.stderr = (stream or null for stream in (sys.stdin, sys.stdout, sys.stderr))
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    if isinstance(sys.stdout.buffer, io.RawIOBase):
        # With PYTHONUNBUFFERED each record would cost one system call, and after a partial write to a pipe the rest would be lost without
        # an error.
        buffered = io.BufferedWriter(sys.stdout.buffer)
        sys.stdout = io.TextIOWrapper(buffered, encoding=sys.stdout.encoding, line_buffering=True)
    # A question mark replaces characters that the terminal or file cannot show: names and records may hold any character.
    sys.stdout.reconfigure(errors="replace")


def _discard_output() -> None:
    """Redirects stdout to the null device after a failed write. Otherwise Python would write the rest of the buffer again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _guarded(line: list[str], do: Callable[[], int]) -> int:
    """Converts an expected error of a command line to one line of text and an exit code. `main` handles `OSError` and Ctrl-C. Other
    exceptions are bugs, and their tracebacks are printed.
    """
    try:
        return do()
    except UsageError as error:
        return _report(line, str(error), "USAGE", EXIT_USAGE)
    except Refused as error:
        return _report(line, str(error), error.name or "REFUSED", EXIT_REFUSED)
    except NotReached as error:
        return _report(line, str(error), "NETWORK_EXCEPTION", EXIT_NO_CONNECTION)
    except ApiError as error:
        message = f"{error.message} ({error.code.name})" if error.message else error.code.name
        return _report(line, message + HINTS.get(error.code, ""), error.code.name, EXIT_REFUSED)
    except OttlaError as error:
        return _other_failure(line, error)
    except (struct.error, OverflowError) as error:
        return _report(line, f"a number does not fit into Kafka's protocol: {error}", "USAGE", EXIT_USAGE)
    except UnicodeEncodeError as error:
        # Bytes of an argument that are not UTF-8 may name a file, but cannot be a string in Kafka's protocol.
        return _report(line, f"{error.object[:80]!r} is not text: it holds bytes that are not UTF-8", "USAGE", EXIT_USAGE)


def _run(line: list[str]) -> int:
    """Runs a whole command line: options before the command, the command's name, and its arguments."""
    from ottla.cli.parser import Leading, length_of_leading

    argv, leading = line, Leading()
    if start := length_of_leading(line):
        from ottla.cli.parser import parse_leading

        argv, leading = line[start:], parse_leading(line[:start])
    if argv[:1] == ["help"] and len(argv) > 1:
        argv = [*argv[1:], "--help"]
    if not argv or argv[0] in ("-h", "--help", "help"):
        from ottla.cli.help_text import overview

        sys.stdout.write(overview())
        return EXIT_DONE if argv else EXIT_USAGE
    if argv[0] in ("-V", "--version", "version"):
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
    return run_command(leading, argv)


def run_command(leading: Leading, argv: list[str], printers: Printers | None = None) -> int:
    """Runs the command that `argv` names, such as `topic list -b ...`. `printers` are set if the line was translated from a Kafka tool:
    they print the results as this tool does.
    """
    argv = canonical(argv)
    name = argv[0]
    if name.startswith("-"):
        mode = next((word for word in argv if word in OF_KCAT), "")
        hint = f"; kcat's {mode} is `{OF_KCAT[mode]}`" if mode else ""
        raise UsageError(pointing_to("ottla --help", f"no option {name!r} before a command{hint}"))
    if name.startswith(("kafka-", "connect-", "zookeeper-", "trogdor")):
        return _run_kafka_tool(leading, argv)
    if name not in GROUPS:
        raise UsageError(pointing_to("ottla --help", f"no command {name!r}{suggested(name)}"))
    if (found := find_command(argv)) is not None:
        command, count = found
        return call(" ".join(["ottla", *argv[:count]]), command, leading, argv[count:], printers)
    commands, verb = load_commands(name), argv[1] if len(argv) > 1 else "--help"
    if verb not in ("-h", "--help"):
        raise UsageError(pointing_to(f"ottla {name} --help", f"no command {name + ' ' + verb!r}{suggested(verb, name)}"))
    from ottla.cli.help_text import group_overview

    sys.stdout.write(group_overview(name, commands))
    return EXIT_DONE if len(argv) > 1 else EXIT_USAGE


def _run_kafka_tool(leading: Leading, argv: list[str]) -> int:
    """Runs one of Kafka's tools: by the command that implements it, or by translating its command line to one of `ottla`."""
    from ottla.cli.kafka_tools import tools

    name, arguments = tools.find(argv)
    if "--version" in arguments:
        sys.stdout.write(tools.version_line())
        return EXIT_DONE
    resolved = tools.with_brokers(name, arguments)
    if isinstance(resolved, list):
        arguments = resolved
    made = resolved if isinstance(resolved, Command) else tools.make(name, arguments)
    if isinstance(made, Command):
        return call(f"ottla {name}", made, leading, arguments, {})
    return run_command(leading, made.argv, made.printers)


def call(program: str, command: Command, leading: Leading, words: list[str], printers: Printers | None) -> int:
    """Parses the words after a command's name and runs it. The options before the command's name are the defaults for the options after it.
    """
    from ottla.cli.parser import build_parser, check_leading

    parser = build_parser(program, command)
    try:
        args = parser.parse_args(words, Args(**vars(leading.options)))
        check_leading(parser, leading, args)
    except SystemExit as stop:  # argparse ends the program after --help
        return int(stop.code or 0)
    args.printers = printers
    if any("=" in word for word in (*leading.words, *words)):
        from ottla.cli.secret_arguments import warn_of_secrets

        warn_of_secrets(args)
    if command.may_watch and args.watch is not None:
        return _watch(command, args, [*leading.words, *words])
    return _execute(command, args)


def _execute(command: Command, args: Args) -> int:
    """Runs a command. The parameter names of its function choose the arguments: `args`, `output`, `cluster`. Returns the exit code."""
    from ottla.cli.options import connect, output_of

    code = command.run.__code__
    names = code.co_varnames[: code.co_argcount]
    given: dict[str, object] = {"args": args} if "args" in names else {}
    if "output" in names:
        given["output"] = output_of(args)
    try:
        if "cluster" not in names:
            return command.run(**given) or EXIT_DONE
        with connect(args) as cluster:
            return command.run(**given, cluster=cluster) or EXIT_DONE
    except ApiError as error:
        if args.printers is None and error.code.name.endswith("_AUTHORIZATION_FAILED"):
            from ottla.cli.denials import explained

            raise explained(error, command, args) from None
        raise


def _other_failure(argv: list[str], error: OttlaError) -> int:
    from ottla.client import errors

    if isinstance(error, errors.UsageError):
        return _report(argv, str(error), "USAGE", EXIT_USAGE)
    if not isinstance(error, errors.ClientError):
        return _report(argv, str(error), type(error).__name__, EXIT_REFUSED)
    message = str(error)
    if isinstance(error, errors.ConnectError) and "cannot reach" in message:
        message += "; start a broker with `ottla start`, or name another with -b HOST:PORT"
    name = "REQUEST_TIMED_OUT" if isinstance(error, errors.RequestTimeoutError) else "NETWORK_EXCEPTION"
    return _report(argv, message, name, EXIT_NO_CONNECTION)


def _watch(command: Command, args: Args, argv: list[str]) -> int:
    """Repeats the command until Ctrl-C. Prints an error and continues."""
    import time

    while True:
        if sys.stdout.isatty():
            sys.stdout.write("\x1b[H\x1b[2J")
        _guarded(argv, lambda: _execute(command, args))
        sys.stdout.flush()
        time.sleep(max(0.1, args.watch))


def _report(argv: list[str], message: str, name: str, code: int) -> int:
    from ottla.cli.output import wants_colour
    from ottla.cli.render.ottla import Output

    sys.stdout.flush()
    output = Output(_form_of(argv), has_colour=wants_colour(sys.stderr, is_forbidden="--no-color" in argv))
    output.error(message, name)
    return code


def _form_of(argv: Sequence[str]) -> str:
    """Returns the structured form of output that the arguments ask for, or `table`. It works also for arguments that cannot be parsed."""
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        if word == "-J":
            return "json"
        form = following if word in ("-o", "--output") else _attached_form(word)
        if form in STRUCTURED:
            return form
    return "table"


def _attached_form(word: str) -> str:
    """Returns the form in a word that contains option and value: `json` in `-ojson`, `-o=json` and `--output=json`."""
    if word.startswith("--output="):
        return word.partition("=")[2]
    return word[2:].removeprefix("=") if word.startswith("-o") else ""


if __name__ == "__main__":
    sys.exit(main())
