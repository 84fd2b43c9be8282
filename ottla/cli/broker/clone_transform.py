"""Loads the file of `ottla clone --transform`, and calls its function `transform(partition, record)`.

    def transform(partition, record):
        return record._replace(value=b"hidden")

`partition` has `topic` and `partition`. `record` has `offset`, `timestamp`, `key`, `value` and `headers`; keys and values are bytes or
None. None as a result drops the record. An error in the file is one line with the line number.
"""

from __future__ import annotations

import importlib.util
import traceback
from pathlib import Path
from typing import Any

from ottla.base.types import TopicPartition
from ottla.cli.command import Refused, UsageError
from ottla.cloning.record_change import Transform
from ottla.wire.records import Record

MODULE_NAME = "ottla_clone_transform"


def load_transform(path: Path) -> Transform:
    """Returns the function `transform` of a file, with checks of its results. Raises UsageError and Refused."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--transform {path} is not a file of Python: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Refused(_failure(path, error), type(error).__name__) from None
    function = getattr(module, "transform", None)
    if not callable(function):
        raise UsageError(f"{path} has no function transform(partition, record)")

    def transform(partition: TopicPartition, record: Record) -> Record | None:
        try:
            found = function(partition, record)
        except Exception as error:
            where = f"{partition} at offset {record.offset}"
            raise Refused(f"{_failure(path, error)} (the record of {where})", type(error).__name__) from None
        if found is not None and not _is_record(found):
            where = f"{partition} at offset {record.offset}"
            raise Refused(f"{path}: transform must return record._replace(...) with bytes, or None; for {where} it returned {found!r:.200}")
        return found  # type: ignore[no-any-return]

    return transform


def _is_record(found: Any) -> bool:
    if not isinstance(found, Record) or not isinstance(found.timestamp, int):
        return False
    if not all(part is None or isinstance(part, bytes) for part in (found.key, found.value)):
        return False
    return isinstance(found.headers, tuple) and all(
        isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) and (one[1] is None or isinstance(one[1], bytes))
        for one in found.headers
    )


def _failure(path: Path, error: Exception) -> str:
    """Describes an error in the user's file in one line, with the number of the line that raised it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path.absolute())]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    return f"{path}:{line}: {type(error).__name__}: {error}" if line else f"{path}: {type(error).__name__}: {error}"
