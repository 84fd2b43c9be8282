"""All commands of the program and their examples, by their words."""

from __future__ import annotations

from ottla.cli.command_groups import GROUPS, load_commands
from ottla.cli.examples import examples_of

COMMANDS = {name if verb == name else f"{name} {verb}": found for name in GROUPS for verb, found in load_commands(name).items()}
EXAMPLES = {name: examples_of(name) for name in COMMANDS}
