"""Settings of a log for tests: the defaults of a broker, with the changes of a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.base.config import BrokerConfig
from ottla.base.log_config import LogConfig

DEFAULTS = BrokerConfig().log_config({})


def log_settings(**changes: Any) -> LogConfig:
    return replace(DEFAULTS, **changes)
