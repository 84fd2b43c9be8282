"""The texts of `ottla --help` and `ottla GROUP --help`."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.cli.command import Command
from ottla.cli.command_groups import GROUPS
from ottla.cli.parser import OPTIONS


def overview() -> str:
    lines = [
        "usage: ottla [OPTIONS] COMMAND [OPTIONS]",
        "",
        "Kafka's system in Python: a broker, and tools for any Kafka-compatible broker.",
    ]
    width = max(map(len, GROUPS)) + 2
    for section in dict.fromkeys(group.section for group in GROUPS.values()):
        lines += ["", f"{section}:"]
        lines += [f"  {name.ljust(width)}{group.help}" for name, group in GROUPS.items() if group.section == section]
    lines += ["", "Options, before the command or after it:", *help_lines()]
    lines += [
        "",
        "Each command: --help. All of them as JSON: ottla --help-json. Kafka's names work too: ottla kafka-topics --list ...",
        "Other words work: topics, topic ls, topic rm, topic consume, version, help COMMAND.",
        "A broker is named by -b HOST:PORT, by KAFKA_BOOTSTRAP_SERVERS or OTTLA_BOOTSTRAP, or by a profile; else localhost:9092.",
    ]
    return "\n".join(lines) + "\n"


def group_overview(name: str, commands: Mapping[str, Command]) -> str:
    width = max(map(len, commands)) + 2
    lines = [f"usage: ottla {name} COMMAND [OPTIONS]", "", GROUPS[name].help, ""]
    lines += [f"  {verb.ljust(width)}{command.help}" for verb, command in commands.items()]
    return "\n".join([*lines, "", f"Options: ottla {name} COMMAND --help"]) + "\n"


def help_lines() -> list[str]:
    """Returns the lines about options for `ottla --help`. Each has the short name of an option, if there is one, and its
    first long name."""
    kept = [one.names[: 1 if one.names[0].startswith("--") else 2] for one in OPTIONS]
    shown = [
        (f"{', '.join(names)} {one.settings.get('metavar', '')}".rstrip(), one.settings["help"])
        for names, one in zip(kept, OPTIONS, strict=True)
    ]
    width = max(len(names) for names, _ in shown) + 2
    return [f"  {names.ljust(width)}{meaning}" for names, meaning in shown]
