"""Reads files that are named on the command line; one that cannot be read is wrong usage, in one line."""

from __future__ import annotations

from typing import Any

from ottla.cli.command import UsageError


def file_text(path: str) -> str:
    """The file's text. Raises `OSError` and `UnicodeDecodeError`."""
    with open(path, encoding="utf-8") as file:
        return file.read()


def read_bytes(path: str) -> bytes:
    """The file's bytes."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None


def read_text(path: str) -> str:
    """The file's text."""
    try:
        return read_bytes(path).decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {path}: it is not a text file") from None


def read_json(path: str) -> Any:
    """The file's JSON, whatever its shape."""
    import json

    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
