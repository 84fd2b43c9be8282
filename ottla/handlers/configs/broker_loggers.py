"""The log levels of the broker's loggers, for DescribeConfigs and IncrementalAlterConfigs (KIP-412, resource type 8).

The loggers of this process have names such as `ottla.connection`. Kafka's `root` is their parent. A logger without a level of its own uses
the level of `root`. Levels have Kafka's names. Python has no FATAL and no TRACE; they become the nearest level. Nothing is stored: the next
start begins with `ottla.log.level`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.base.config import ConfigSource, Setting, Type
from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.api import ConfigEntry as Change
from ottla.controller.api import ConfigOperation
from ottla.handlers.configs.entries import ShownSetting

ROOT = "root"
FAMILY = "ottla"
LEVELS = {
    "FATAL": logging.CRITICAL, "ERROR": logging.ERROR, "WARN": logging.WARNING, "INFO": logging.INFO, "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}  # fmt: skip
_WORDS = {level: word for word, level in reversed(LEVELS.items())}
_DOC = "Log level of this part of the broker; not kept over a restart."


def logger_entries() -> list[ShownSetting]:
    """Returns the loggers with the levels in force."""
    return [
        ShownSetting(Setting(name, Type.STRING, None, _DOC), _word(logger), ConfigSource.DYNAMIC_BROKER_LOGGER, False, [])
        for name, logger in sorted(_loggers().items())
    ]


def alter_loggers(changes: Sequence[Change], *, validate_only: bool) -> None:
    """Changes all the levels, or raises `ApiError` and changes none."""
    loggers = _loggers()
    wanted = [(loggers[change.name], _level(change)) for change in changes if _is_known(change, loggers)]
    if not validate_only:
        for logger, level in wanted:
            logger.setLevel(level)


def _loggers() -> dict[str, logging.Logger]:
    found = {name: logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith(FAMILY + ".")}
    return {ROOT: logging.getLogger(FAMILY), **found}


def _word(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return _WORDS[max((known for known in _WORDS if known <= level), default=logging.DEBUG)]


def _is_known(change: Change, loggers: dict[str, logging.Logger]) -> bool:
    if change.name not in loggers:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    return True


def _level(change: Change) -> int:
    if change.operation is ConfigOperation.DELETE:
        if change.name == ROOT:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        return logging.NOTSET
    if change.operation is not ConfigOperation.SET:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.operation.name} operation is not allowed for the BROKER_LOGGER resource")
    word = (change.value or "").strip().upper()
    if word not in LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}",
        )
    return LEVELS[word]
