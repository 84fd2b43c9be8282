"""Argument handling that several tools share: options that may be given once, and actions that exclude each other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ottla.cli.command import UsageError


class Once(argparse.Action):
    """An option that Kafka's tools accept only once."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        if getattr(namespace, self.dest, None) is not None:
            name = (option_string or self.dest).lstrip("-")
            raise UsageError(f"found multiple arguments for option {name}, but it takes only one")
        setattr(namespace, self.dest, values)


def action_of(args: argparse.Namespace, actions: Sequence[str]) -> str:
    """The one chosen action, by the name of its attribute."""
    chosen = [action for action in actions if getattr(args, action)]
    if len(chosen) != 1:
        words = ["--" + action.replace("_", "-") for action in actions]
        raise UsageError(f"Command must include exactly one action: {', '.join(words[:-1])} or {words[-1]}")
    return chosen[0]
