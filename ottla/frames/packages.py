"""Imports third-party packages on use, and names a missing package."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ottla.frames.errors import FrameError, FrameUsageError, MissingPackageError
from ottla.schemas import errors as schemas

INSTALL = "'duckdb>=2' 'numpy>=2' 'pyarrow>=18'"
"""The packages of the extra `ottla[frame]`, for pip. Ottla is in no package index. The user chooses the libraries of DataFrames."""


def library(name: str) -> Any:
    """Imports a package. Raises `MissingPackageError` with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = (error.name or name).partition(".")[0]
        wanted = INSTALL if f"'{missing}>" in INSTALL else missing
        raise MissingPackageError(f"{missing} cannot be imported; install it: pip install {wanted}", name=missing) from None


@contextmanager
def as_frame_errors() -> Iterator[None]:
    """Converts errors of schemas and registries to errors of frames with the same message."""
    try:
        yield
    except schemas.SchemaUsageError as error:
        raise FrameUsageError(str(error)) from None
    except schemas.MissingPackageError as error:
        raise MissingPackageError(error.text) from None
    except schemas.SchemaError as error:
        raise FrameError(str(error)) from None
