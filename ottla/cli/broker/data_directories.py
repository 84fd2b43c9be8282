"""Finds the data directories of a broker for `stop`, `status`, `reset`, `snapshot` and `restore`, and the broker that runs in them.

`--data-dir` names one directory. Without it, `log.dirs` or `log.dir` of `--config` or of the environment (KAFKA_LOG_DIRS, KAFKA_LOG_DIR)
applies, else `ottla-data`.
"""

from __future__ import annotations

import os
from typing import Any

from ottla.cli.broker.running import Running, find
from ottla.cli.command import Args, UsageError, option

PLACE_OPTIONS = (
    option("-d", "--data-dir", metavar="DIR", help="the broker's data directory (default: log.dirs, else ./ottla-data)"),
    option("--config", metavar="FILE", help="the broker's configuration"),
)
"""The options that name a broker by its data directories."""


def directories_of(args: Args) -> list[str]:
    """Returns the absolute paths of the broker's data directories. Raises `UsageError` for an invalid configuration."""
    if args.data_dir:
        return [os.path.abspath(args.data_dir)]
    if args.config or os.environ.get("KAFKA_LOG_DIRS") or os.environ.get("KAFKA_LOG_DIR"):
        from ottla.cli.broker.start import StartError, read_config

        empty: dict[str, Any] = {"assignments": [], "port": None, "host": None, "ephemeral": False, "data_dir": None, "sync": False}
        empty.update(config=args.config, as_version=None, cores=None, log_format=None, log_level=None)
        try:
            config, _ = read_config(Args(**empty))
        except StartError as error:
            raise UsageError(str(error)) from None
        return [os.path.abspath(path) for path in config.data_directories]
    return [os.path.abspath("ottla-data")]


def running_broker(args: Args) -> Running | None:
    """Returns the broker that runs in one of the directories, or None."""
    return next((found for found in map(find, directories_of(args)) if found is not None), None)
