"""The broker's own log: text for people, JSON for machines, always on stderr (stdout belongs to the READY line).

Each line carries the broker's id and, where the caller passes them with `extra=`, the listener, client id and correlation id that it is
about. A line stays one line whatever a client has called itself: what could end it early is written as an escape. No value of a setting is
ever logged, only names, so no secret can be; where the values came from is (`sources_line`).
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter

from ottla.base.config import BROKER_SETTINGS, BrokerConfig, Source

FACTS = {"listener": "listener", "client_id": "client.id", "correlation_id": "correlation.id"}
"""Attributes of a log record, and what they are called in the line."""

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {9: "\t", 10: "\\n", 13: "\\r"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line, its time in UTC: machines of several zones send to one place."""

    def __init__(self, broker_id: int) -> None:
        super().__init__()
        self.converter = time.gmtime
        self._broker_id = broker_id

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "broker.id": self._broker_id,
            **facts_of(record),
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """`time LEVEL logger [broker.id=0 listener=... client.id=... correlation.id=...]: message`, and the traceback if there is one."""

    def __init__(self, broker_id: int) -> None:
        super().__init__()
        self._broker_id = broker_id

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={value}" for name, value in facts_of(record).items())
        said = f"{record.name} [broker.id={self._broker_id}{facts}]: {record.getMessage()}".translate(_ESCAPES)
        line = f"{self.formatTime(record)} {record.levelname:7} {said}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def facts_of(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for attribute, name in FACTS.items() if (value := getattr(record, attribute, None)) is not None}


def set_up_logging(form: str, level: str, broker_id: int) -> None:
    """`form`: text, json, or auto (text on a terminal)."""
    is_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter(broker_id) if is_text else JsonFormatter(broker_id))
    for name, least in (("ottla", level.upper()), ("asyncio", "WARNING")):  # the loop speaks up when a callback fails
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(least)
        logger.propagate = False


def sources_line(config: BrokerConfig) -> str:
    """How many settings came from where: `configuration: 5 settings from server.properties, 1 from the environment, ...`."""
    found = Counter(config.where(name) for name in BROKER_SETTINGS if config.source(name) is Source.STATIC_BROKER)
    given = ", ".join(f"{count} from {where}" for where, count in found.items())
    return f"configuration: {given or 'nothing given'}; {len(BROKER_SETTINGS) - found.total()} by default"
