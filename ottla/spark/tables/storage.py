"""Reads and writes the files of a table, on a local disk or in S3, through pyarrow's file systems, and converts errors of storage to one
line.

Paths are relative to the table's location. In S3 a file does not exist until it is closed. On a local disk it exists while it is written,
but the table's log does not name it yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ottla.spark.errors import PipelineError
from ottla.spark.tables.table import STORAGE_KEYS, Table

REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 5.0
ATTEMPTS = 5
"""Attempts of one request to an object store, with growing pauses between them."""


class TableFiles:
    """Reads, writes and removes files below a table's location."""

    def __init__(self, table: Table) -> None:
        from pyarrow import fs

        self._is_local = table.is_local
        root = table.uri if table.is_local else table.uri.partition("://")[2]
        base = fs.LocalFileSystem() if table.is_local else _s3(table)
        self.system = fs.SubTreeFileSystem(root, base)

    def create(self, path: str) -> Any:
        """Opens a new file for writing (`pyarrow.NativeFile`). Makes its directories, which only a local disk has."""
        if self._is_local:
            self.system.create_dir(os.path.dirname(path), recursive=True)
        return self.system.open_output_stream(path)

    def open(self, path: str) -> Any:
        """Opens a file for reading at any position (`pyarrow.NativeFile`)."""
        return self.system.open_input_file(path)

    def below(self, directory: str) -> list[str]:
        """Returns the paths of all files in a directory and in its subdirectories. The result is empty if the directory does not exist."""
        from pyarrow import fs

        found = self.system.get_file_info(fs.FileSelector(directory, allow_not_found=True, recursive=True))
        return [one.path for one in found if one.type == fs.FileType.File]

    def written_before(self, directory: str, moment_ms: int) -> list[str]:
        """Returns the paths of the files below a directory that were written before a moment, in milliseconds since 1970."""
        from pyarrow import fs

        found = self.system.get_file_info(fs.FileSelector(directory, allow_not_found=True, recursive=True))
        return [one.path for one in found if one.type == fs.FileType.File and one.mtime_ns < moment_ms * 1_000_000]

    def remove(self, paths: Iterable[str]) -> None:
        """Removes files. A missing file is ignored, because another process may have removed it."""
        for path in paths:
            try:
                self.system.delete_file(path)
            except FileNotFoundError:
                pass


def storage_options(table: Table) -> dict[str, str]:
    """Returns the options of an object store: the table's, else the environment's. A plain `http` endpoint is allowed,
    because the user has named it."""
    if table.is_local:
        return {}
    found = {key: value for key in STORAGE_KEYS if (value := table.storage.get(key) or os.environ.get(key.upper(), ""))}
    if found.get("aws_endpoint_url", "").startswith("http://"):
        found.setdefault("aws_allow_http", "true")
    return found


def _s3(table: Table) -> Any:
    from pyarrow import fs

    given = storage_options(table)
    scheme, _, endpoint = given.get("aws_endpoint_url", "").rpartition("://")
    keys = {
        "access_key": "aws_access_key_id",
        "secret_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
        "region": "aws_region",
    }
    options = {name: given[key] for name, key in keys.items() if key in given}
    if endpoint:
        options |= {"endpoint_override": endpoint, "scheme": scheme}
    return fs.S3FileSystem(
        request_timeout=REQUEST_SECONDS,
        connect_timeout=CONNECT_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **options,
    )


@contextmanager
def explained(table: Table, option: str = "location") -> Iterator[None]:
    """Converts errors of storage and of the formats' libraries to a `PipelineError` of one line that begins with the option to check."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise PipelineError(f"{option}: {table.uri}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, or the error's name if there is no message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
