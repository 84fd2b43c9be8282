"""The table of commands: each word has a module of its name, and the module has the command."""

from __future__ import annotations

import argparse

import pytest

from ottla.cli.command import add_options
from ottla.cli.command_groups import GROUPS, load_commands


@pytest.mark.parametrize("name", GROUPS)
def test_a_command_is_found_in_the_module_of_its_name(name: str) -> None:
    names = {part for module in GROUPS[name].modules.split() for part in module.split(".")}
    assert name.replace("-", "_") in names or name == "restore"  # beside `snapshot`, its inverse


@pytest.mark.parametrize("name", GROUPS)
def test_every_word_has_its_commands(name: str) -> None:
    found = load_commands(name)
    for command in found.values():
        assert command.help.endswith((".", "?"))
        add_options(argparse.ArgumentParser(), command.options)
    assert found
