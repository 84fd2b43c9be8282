"""`ottla shims install DIR` writes small scripts with Kafka's file names, `ottla shims list` lists the tools. PATH is not changed."""

from __future__ import annotations

from ottla.base.counted import counted
from ottla.cli.command import Args, Refused, command, flag, option
from ottla.cli.kafka_tools.tools import NOT_OFFERED, RUN_CLASS, TOOLS
from ottla.cli.render.ottla import Output, Row


class ToolRow(Row):
    """A tool of Kafka in `shims list`, with its Java class names."""

    tool: str
    help: str
    classes: list[str]


@command(
    "shims install",
    "Write kafka-topics.sh and so on into a directory.",
    option("directory", metavar="DIR", help="where the scripts go; put it on PATH if you like"),
    flag("--force", help="overwrite other files too"),
    has_connection=False,
)
def _install(args: Args, output: Output) -> None:
    import shlex
    import sys
    from pathlib import Path

    directory = Path(args.directory)
    mark = "# Written by ottla shims install."
    names = [f"{name}.sh" for name in (*TOOLS, RUN_CLASS, *NOT_OFFERED)]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in names:
            path = directory / name
            if path.exists() and not args.force and mark not in path.read_text(errors="replace"):
                raise Refused(f"{path} exists and was not written by this command; --force overwrites it", "FILE_EXISTS")
        for name in names:
            path = directory / name
            path.write_text(f'#!/bin/sh\n{mark}\nexec {shlex.quote(sys.executable)} -m ottla.cli.main {name} "$@"\n')
            path.chmod(0o755)
    except OSError as error:
        raise Refused(f"cannot write to {directory}: {(error.strerror or str(error)).lower()}") from None
    output.done(f"Wrote {counted(len(names), 'script')} to {directory}.", {"directory": str(directory), "scripts": names})


@command("shims list", "The offered tools of Kafka, with their class names.", may_watch=True, has_connection=False)
def _list(args: Args, output: Output) -> None:
    output.rows("tools", ToolRow, [ToolRow(name, tool.help, list(tool.classes)) for name, tool in TOOLS.items()])
