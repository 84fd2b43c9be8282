"""Loads the parts of commands that are rarely used: schemas and packet captures. The entry module of a part is imported on use, by its name
in `PARTS`.

Modules outside of such a package do not import from it, so a part costs no start time. (`ottla top` is loaded as every command is, by the
table in `command_groups.py`.) Libraries of other projects that only some users need are imported by `library`.
"""

from __future__ import annotations

import importlib
from typing import Any

from ottla.cli.command import Refused

PARTS = {"schemas": "schemas.record_schemas", "page schemas": "schemas.page_schemas", "captures": "captures.conversation"}
"""By name, the entry module under `ottla.cli`."""


def part(name: str) -> Any:
    return importlib.import_module(f"ottla.cli.{PARTS[name]}")


def library(name: str, found_in: str = "") -> Any:
    """Imports a module of another project. If it is missing, raises `Refused` with the name of the package to install."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        message = f"{package} cannot be imported; install it: pip install {found_in or package}"
        raise Refused(message, "MissingRequirementError") from None
