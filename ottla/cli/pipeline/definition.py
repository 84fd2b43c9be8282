"""Loads the pipelines that a Python file defines, and connects a client for a pipeline or for a consumer group."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli import options
from ottla.cli.command import Args, Refused, UsageError

if TYPE_CHECKING:
    from ottla.client import Client
    from ottla.spark.pipeline import Pipeline


def is_file(word: str) -> bool:
    """Returns whether a word names a file with pipelines (`.py`), and not a group."""
    return word.endswith(".py")


def load_pipelines(args: Args, path: str) -> list[Pipeline]:
    """Returns the pipelines of a file in the order of definition. `--group` selects the pipelines of the named groups.

    `-b` and other connection options replace the file's. Raises UsageError if there is no such pipeline, `Refused` if the file fails.
    """
    from ottla.spark.pipeline import Pipeline

    module = _import_file(Path(path))
    found = list(dict.fromkeys(_Same(value) for value in vars(module).values() if isinstance(value, Pipeline)))
    pipelines = [_connected(args, one.pipeline) for one in found]
    if not pipelines:
        raise UsageError(f"{path} defines no pipeline; it needs a line such as `pipeline = ottla.spark.Pipeline(group=..., ...)`")
    wanted = getattr(args, "group", None)
    if wanted:
        pipelines = [pipeline for pipeline in pipelines if pipeline.group in wanted]
        if not pipelines:
            raise UsageError(f"{path} defines no pipeline of the group {', '.join(wanted)}")
    return pipelines


class _Same:
    """Compares pipelines by identity, because a file may give one pipeline two names, and two pipelines equal values."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def __hash__(self) -> int:
        return id(self.pipeline)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.pipeline is self.pipeline


def _import_file(path: Path) -> Any:
    """Runs the file as a module with a name of its own. Its folder is appended to the path: a `copy.py` in it must not replace Python's."""
    from ottla.spark.runner import FILE_MODULE_PREFIX

    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    name = FILE_MODULE_PREFIX + path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.append(str(path.parent.absolute()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Refused(_failure(path, error), type(error).__name__) from None
    return module


def _failure(path: Path, error: Exception) -> str:
    """Describes an error in the user's file in one line, with the number of the file's line that raised it."""
    from ottla.spark.errors import PipelineError

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    name = "" if isinstance(error, PipelineError) else f"{type(error).__name__}: "
    return f"{path}:{line}: {name}{error}" if line else f"{path}: {name}{error}"


def _connected(args: Args, pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline with the connection options applied. The current profile is used only if the file names no brokers."""
    from ottla.spark.pipeline import DEFAULT_BOOTSTRAP

    properties = options.properties_of(args, with_current_profile=pipeline.bootstrap == DEFAULT_BOOTSTRAP)
    bootstrap = properties.pop("bootstrap.servers", pipeline.bootstrap)
    return replace(pipeline, bootstrap=bootstrap, connection={**pipeline.connection, **properties})


def connect_for(args: Args, pipeline: Pipeline | None) -> Client:
    """Returns a client of the pipeline's cluster; without a pipeline, of the cluster that the options name."""
    from ottla.client.blocking.client import Client, connect

    if pipeline is None:
        return Client(options.connect(args))
    return connect(pipeline.bootstrap, pipeline.connection, timeout_s=options.DEFAULT_TIMEOUT_MS / 1000)
