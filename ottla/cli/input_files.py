"""Reads files that the command line names. All functions but `file_text` raise `UsageError` for a file that cannot be read."""

from __future__ import annotations

from typing import Any

from ottla.cli.command import UsageError


def file_text(path: str) -> str:
    """Returns the file's UTF-8 text. Raises `OSError` and `UnicodeDecodeError`."""
    with open(path, encoding="utf-8") as file:
        return file.read()


def read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None


def read_text(path: str) -> str:
    """Returns the file's UTF-8 text, with `\\n` as the end of each line."""
    try:
        return read_bytes(path).decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {path}: it is not a text file") from None


def read_json(path: str) -> Any:
    """Returns the JSON value in the file. The caller checks its shape."""
    return parse_json(read_text(path), path)


def parse_json(text: str, path: str) -> Any:
    """Returns the JSON value in a text from the file. Raises `UsageError` if the text is not JSON."""
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
