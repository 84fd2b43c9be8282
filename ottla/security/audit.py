"""The audit log. It has a line for each refused authorization and each refused authentication. With `logs_granted` it also has a line for
each granted authorization of one resource.

A line about an authorization names principal, host, operation, resource and listener. A line about an authentication names user, host,
mechanism, reason and listener. Texts chosen by clients are written as JSON strings, so that a name cannot forge another part of the line or
a new line. A repeated line is written at most once in `REPEAT_MS`, with the number of lines that were suppressed since. Texts are treated
as equal if their first `TEXT_LETTERS_MAX` letters are equal. Among very many different lines a repeat may be written earlier. One client in
a loop therefore does not hide the refusals of other clients. The total number of lines is limited in `server/logging_setup.py`. No method
takes a credential; callers keep secrets out of `reason`.
"""

from __future__ import annotations

import json
import logging

from ottla.base.bounded_cache import BoundedCache
from ottla.base.ports import Clock
from ottla.security.acl import AclOperation, ResourceType
from ottla.security.principal import Requester

log = logging.getLogger("ottla.audit")

REPEAT_MS = 10_000
REPEATS_BYTES_MAX = 4 << 20
"""Memory for the latest lines, keyed by their content. 4 MiB: about a thousand lines with the longest names."""

TEXT_LETTERS_MAX = 256


class AuditLog:
    """Writes the lines, and counts refused authorizations."""

    def __init__(self, clock: Clock, *, logs_granted: bool = False) -> None:
        self.logs_granted = logs_granted
        self.refused_count = 0
        self._clock = clock
        self._written: BoundedCache[tuple[object, ...], list[int]] = BoundedCache(REPEATS_BYTES_MAX, value_bytes=150)
        """For each line: when it was last written, and how many equal lines were suppressed since."""

    def refused(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        self.refused_count += 1
        suppressed = self._suppressed_before(False, requester.principal, requester.host, operation, resource_type, name)
        if suppressed is not None:
            log.warning("denied: %s%s", _line(requester, operation, resource_type, name), _more(suppressed), extra=_log_fields(requester))

    def granted(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        suppressed = self._suppressed_before(True, requester.principal, requester.host, operation, resource_type, name)
        if suppressed is not None:
            log.info("allowed: %s%s", _line(requester, operation, resource_type, name), _more(suppressed), extra=_log_fields(requester))

    def refused_authentication(self, host: str, listener: str, mechanism: str, user: str, reason: str) -> None:
        """Logs a refused authentication. `user` is the name that the client gave, empty if it gave none. `reason` must not contain a
        secret."""
        suppressed = self._suppressed_before("authentication", host, mechanism, user, reason)
        if suppressed is not None:
            who = f"user={quoted(user)} " if user else ""
            line = f"{who}host={quoted(host)} mechanism={quoted(mechanism)} reason={quoted(reason)} listener={quoted(listener)}"
            log.warning("authentication refused: %s%s", line, _more(suppressed), extra={"listener": listener})

    def refused_broker(self, requester: Requester, reason: str) -> None:
        """Logs that the sender claimed to be a broker without proof; it is treated as a client."""
        suppressed = self._suppressed_before("broker", requester.principal, requester.host, reason)
        if suppressed is not None:
            line = f"principal={quoted(requester.principal)} host={quoted(requester.host)} reason={quoted(reason)}"
            text = f"{line} listener={quoted(requester.listener)}"
            log.warning("not taken for a broker: %s%s", text, _more(suppressed), extra=_log_fields(requester))

    def _suppressed_before(self, *subject: object) -> int | None:
        """Decides whether to write the line about `subject`. Returns the number of equal lines that were suppressed since the last written
        one, or None if this line must be suppressed too. Lines that differ only in the listener are equal."""
        now_ms = self._clock.monotonic_ms()
        subject = tuple(cut(part) if isinstance(part, str) else part for part in subject)
        written = self._written.get(subject)
        if written is not None and now_ms < written[0] + REPEAT_MS:
            written[1] += 1
            return None
        self._written.remember(subject, [now_ms, 0])
        return 0 if written is None else written[1]


def cut(text: str) -> str:
    """Returns the start of a text that a client has chosen."""
    return text if len(text) <= TEXT_LETTERS_MAX else text[:TEXT_LETTERS_MAX] + "..."


def quoted(text: str) -> str:
    """Cuts a text that a client has chosen, and returns it as a JSON string in ASCII."""
    return json.dumps(cut(text))


def _line(requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> str:
    return (
        f"principal={quoted(requester.principal)} host={quoted(requester.host)} operation={operation.name} "
        f"resource={resource_type.name} {quoted(name)} listener={quoted(requester.listener)}"
    )


def _log_fields(requester: Requester) -> dict[str, str]:
    return {"listener": requester.listener}


def _more(suppressed: int) -> str:
    return f" ({suppressed} more since the last such line)" if suppressed else ""
