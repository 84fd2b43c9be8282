"""Sets up the broker's own log: text for people or JSON for programs, always on stderr (stdout has only the READY line).

Each line has the broker's id and, if the caller passes them with `extra=`, the listener, client id and correlation id. An entry is one line
(a traceback follows in text): characters that could end the line, or control a terminal, are escaped in JSON and text. Long texts are cut:
a value after 256 characters, a line after 2,000. The rate of lines with the same cause (the same template) is limited, and the next such
line has the number of omitted lines. The last lines are kept in memory (`last_lines`). `sources_line` says how many settings have which
source, without their values.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import TextIO

from ottla.base.bounded_cache import BoundedCache
from ottla.base.config import BROKER_SETTINGS, BrokerConfig, ConfigSource, Notice

log = logging.getLogger("ottla")

FACTS = {"listener": "listener", "client_id": "client.id", "correlation_id": "correlation.id"}
"""Attributes of a log record, and their names in the line."""

NAME_LETTERS_MAX = 256
LINE_LETTERS_MAX = 2_000
BURST_MAX = 100
"""Lines of one cause in a burst; after that `LINES_PER_SECOND`."""
LINES_PER_SECOND = 5
KEPT_LETTERS_MAX = 128 * 1024
CAUSES_BYTES_MAX = 1 << 20
"""Memory for the causes of recent lines, in bytes."""

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {9: "\t", 10: "\\n", 13: "\\r"}
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPES |= {code: f"\\u{code:04x}" for code in _DIRECTIONS}
_LINES_OF_TRACEBACK = {**_ESCAPES, 10: "\n"}
_ESCAPES_IN_JSON = {code: f"\\u{code:04x}" for code in (*range(127, 160), *_DIRECTIONS)}


class JsonFormatter(logging.Formatter):
    """Formats an entry as one line with a JSON object. Its time is in UTC, because machines in several time zones may log to one place."""

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
            "message": message_of(record),
        }
        if record.exc_info:
            entry["exception"] = traceback_of(self, record)
        return json.dumps(entry, ensure_ascii=False).translate(_ESCAPES_IN_JSON)


class TextFormatter(logging.Formatter):
    """`time LEVEL logger [broker.id=0 listener=... client.id=... correlation.id=...]: message`, and the traceback if there is one."""

    def __init__(self, broker_id: int) -> None:
        super().__init__()
        self._broker_id = broker_id

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={value}" for name, value in facts_of(record).items())
        said = f"{record.name} [broker.id={self._broker_id}{facts}]: {message_of(record)}".translate(_ESCAPES)
        line = f"{self.formatTime(record)} {record.levelname:7} {said}"
        return f"{line}\n{traceback_of(self, record).translate(_LINES_OF_TRACEBACK)}" if record.exc_info else line


class RateLimit(logging.Filter):
    """Limits the rate of lines of one cause (`BURST_MAX`, `LINES_PER_SECOND`), because clients can cause a line with each request. `now` is
    a monotonic time in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._causes: BoundedCache[tuple[str, int, object], Cause] = BoundedCache(CAUSES_BYTES_MAX, value_bytes=150)

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._now()
        key = (record.name, record.levelno, record.msg if isinstance(record.msg, str) else type(record.msg))
        cause = self._causes.get(key)
        if cause is None:
            cause = self._causes.remember(key, Cause(now))
        if not cause.admits(now):
            return False
        if cause.left_out:
            record.left_out, cause.left_out = cause.left_out, 0
        return True


class Cause:
    """The token bucket of one cause."""

    __slots__ = ("_at", "_room", "left_out")

    def __init__(self, now: float) -> None:
        self._at = now
        self._room = float(BURST_MAX)
        self.left_out = 0

    def admits(self, now: float) -> bool:
        self._room = min(self._room + (now - self._at) * LINES_PER_SECOND, BURST_MAX)
        self._at = now
        if self._room < 1:
            self.left_out += 1
            return False
        self._room -= 1
        return True


def facts_of(record: logging.LogRecord) -> dict[str, object]:
    return {name: cut(value) for attribute, name in FACTS.items() if (value := getattr(record, attribute, None)) is not None}


def message_of(record: logging.LogRecord) -> str:
    """Returns the message, with shortened arguments and length, and the number of omitted lines before it."""
    if isinstance(record.args, tuple):
        record.args = tuple(map(cut, record.args))
    message = record.getMessage()
    if len(message) > LINE_LETTERS_MAX:
        message = message[:LINE_LETTERS_MAX] + "..."
    left_out = getattr(record, "left_out", 0)
    return f"{message} ({left_out} more like this were left out before)" if left_out else message


def traceback_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Returns the traceback with shortened lines, because the last line may quote bytes of a client."""
    lines = formatter.formatException(record.exc_info).split("\n") if record.exc_info else []
    return "\n".join(line if len(line) <= LINE_LETTERS_MAX else line[:LINE_LETTERS_MAX] + "..." for line in lines)


def cut(value: object) -> object:
    """Returns a number unchanged, and anything else as a shortened text."""
    if isinstance(value, int | float):
        return value
    text = str(value)
    return text if len(text) <= NAME_LETTERS_MAX else text[:NAME_LETTERS_MAX] + "..."


class KeepingHandler(logging.StreamHandler[TextIO]):
    """Writes lines to stderr, and keeps the last ones, at most `KEPT_LETTERS_MAX` characters, for the HTTP port."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._kept: deque[str] = deque()
        self._letters = 0

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        self._kept.append(line)
        self._letters += len(line)
        while self._letters > KEPT_LETTERS_MAX and len(self._kept) > 1:
            self._letters -= len(self._kept.popleft())
        return line

    def kept(self) -> list[str]:
        """Returns the kept lines, the oldest first. Threads may call it while others log."""
        self.acquire()
        try:
            return list(self._kept)
        finally:
            self.release()


def last_lines() -> str:
    """Returns the last lines of the log of this process, an empty text before `set_up_logging`."""
    kept = (line for handler in log.handlers if isinstance(handler, KeepingHandler) for line in handler.kept())
    return "".join(f"{line}\n" for line in kept)


def set_up_logging(form: str, level: str, broker_id: int) -> None:
    """Sets the handler of the loggers. `form` is text, json, or auto (text on a terminal)."""
    is_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler = KeepingHandler()
    handler.setFormatter(TextFormatter(broker_id) if is_text else JsonFormatter(broker_id))
    handler.addFilter(RateLimit())
    for name, least in (("ottla", level.upper()), ("asyncio", "WARNING")):  # asyncio logs failed callbacks
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(least)
        logger.propagate = False


def log_notices(notices: Iterable[Notice]) -> None:
    """Logs the notices of the configuration's reader, such as warnings about ignored settings."""
    for notice in notices:
        log.log(logging.WARNING if notice.is_warning else logging.INFO, notice.text)


def sources_line(config: BrokerConfig) -> str:
    """Returns a log line with the number of settings from each source: `configuration: 5 settings from server.properties, ...`."""
    found = Counter(config.where(name) for name in BROKER_SETTINGS if config.source(name) is ConfigSource.STATIC_BROKER)
    given = ", ".join(f"{count} from {where}" for where, count in found.items())
    return f"configuration: {given or 'nothing given'}; {len(BROKER_SETTINGS) - found.total()} by default"
