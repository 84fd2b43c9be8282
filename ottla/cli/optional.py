"""Parts of commands that few command lines use: schemas and packet captures. An entry module is imported on use, by its name in `PARTS`.

Nothing outside such a package imports from it, so a part costs no start time. (`ottla top` is loaded as every command is, by the table in
`command_groups.py`.) Libraries of other projects that only some users need are imported by `library`.
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
    """Imports a module of another project. Refuses with the package to install if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        message = f"{package} cannot be imported; install it: pip install {found_in or package}"
        raise Refused(message, "MissingRequirementError") from None
