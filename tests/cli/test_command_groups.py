"""The table of commands: each word has a module of its name, and the module has the command."""

from __future__ import annotations

import argparse

import pytest

from ottla.cli.command import Command
from ottla.cli.command_groups import GROUPS, load_commands


@pytest.mark.parametrize("name", GROUPS)
def test_a_command_is_found_in_the_module_of_its_name(name: str) -> None:
    assert GROUPS[name].module.rpartition(".")[2] == name.replace("-", "_")


@pytest.mark.parametrize("name", GROUPS)
def test_every_word_has_its_commands(name: str) -> None:
    found = load_commands(name)
    for command in [found] if isinstance(found, Command) else found.values():
        assert command.help.endswith((".", "?"))
        command.add_arguments(argparse.ArgumentParser())
    assert isinstance(found, Command) or found
