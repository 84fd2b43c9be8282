"""The errors of schemas and registries. Their message is one line. `option` names the option or argument to check; the message begins with
it.
"""

from __future__ import annotations

import importlib
from typing import Any

from ottla.base.errors import OttlaError


class Misfit(Exception):
    """A value does not fit a schema. The message says why."""


class SchemaError(OttlaError):
    """The base class of errors of schemas and registries."""

    def __init__(self, text: str, option: str = "schema") -> None:
        super().__init__(f"{option}: {text}")
        self.text = text
        self.option = option


class SchemaUsageError(SchemaError, ValueError):
    """A schema is not valid, or an option is wrong or contradicts another one. Nothing was read or written."""


class RegistryError(SchemaError):
    """The registry refused a request (`status` is the HTTP status), or its answer has no usable schema."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text, "registry")
        self.status = status


class RegistryAwayError(RegistryError):
    """The registry cannot be reached, or did not answer in time."""


class SchemaCompilerError(SchemaError):
    """The compiler of Protobuf did not finish in time."""


class MissingPackageError(SchemaError, ImportError):
    """A package is not installed. The message has the command that installs it."""


PACKAGES = {"google": "protobuf", "grpc_tools": "grpcio-tools"}
"""Names of packages by import name, where the two differ."""


def library(name: str) -> Any:
    """Imports a module of another project. Raises `MissingPackageError` with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        message = f"{package} cannot be imported; install it: pip install {PACKAGES.get(package, package)}"
        raise MissingPackageError(message) from None


def first_line(error: object) -> str:
    """Returns the first line of an error's text, or the name of its class if it has no text."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
