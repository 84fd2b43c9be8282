"""The audit log: one line for a refused authorization or authentication, and for a granted one where that is asked for.

A line names principal, host, operation, resource and listener. What clients choose is written as JSON strings, so that a name cannot look
like the rest of the line or end it. The same refusal is written once in `REPEAT_MS`, and then with the number of those left out, so that
one client in a loop does not hide the refusals of others; the log's own limit is on lines in all (`server/logging_setup.py`). No secret
ever comes here: credentials have no parameter.
"""

from __future__ import annotations

import json
import logging

from ottla.base.ports import Clock
from ottla.security.acl import AclOperation, ResourceType
from ottla.security.principal import Requester

log = logging.getLogger("ottla.audit")

REPEAT_MS = 10_000
SUBJECTS_MAX = 1_000
"""Of so many different lines it is known when they were written last."""

TEXT_LETTERS_MAX = 256


class AuditLog:
    """Writes the lines, and counts refusals."""

    def __init__(self, clock: Clock, *, logs_granted: bool = False) -> None:
        self.logs_granted = logs_granted
        self.refused_count = 0
        self._clock = clock
        self._written: dict[tuple[object, ...], list[int]] = {}
        """When a line was written last, and how many like it were left out since."""

    def refused(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        self.refused_count += 1
        left_out = self._left_out(False, requester.principal, requester.host, operation, resource_type, name)
        if left_out is not None:
            log.warning("denied: %s%s", _line(requester, operation, resource_type, name), _more(left_out), extra=_facts(requester))

    def granted(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        left_out = self._left_out(True, requester.principal, requester.host, operation, resource_type, name)
        if left_out is not None:
            log.info("allowed: %s%s", _line(requester, operation, resource_type, name), _more(left_out), extra=_facts(requester))

    def refused_authentication(self, host: str, listener: str, mechanism: str, user: str, reason: str) -> None:
        """`user`: the name that the client has given, where it came to that; `reason` must not name a secret."""
        left_out = self._left_out("authentication", host, mechanism, user, reason)
        if left_out is not None:
            who = f"user={quoted(user)} " if user else ""
            line = f"{who}host={quoted(host)} mechanism={quoted(mechanism)} reason={quoted(reason)} listener={quoted(listener)}"
            log.warning("authentication refused: %s%s", line, _more(left_out), extra={"listener": listener})

    def refused_broker(self, requester: Requester, reason: str) -> None:
        """The sender has wanted to be taken for a broker; it stays a client."""
        left_out = self._left_out("broker", requester.principal, requester.host, reason)
        if left_out is not None:
            line = f"principal={quoted(requester.principal)} host={quoted(requester.host)} reason={quoted(reason)}"
            text = f"{line} listener={quoted(requester.listener)}"
            log.warning("not taken for a broker: %s%s", text, _more(left_out), extra=_facts(requester))

    def _left_out(self, *subject: object) -> int | None:
        """How many lines about this were left out since the last one; None if this is left out as well."""
        now_ms = self._clock.monotonic_ms()
        written = self._written.get(subject)
        if written is not None and now_ms < written[0] + REPEAT_MS:
            written[1] += 1
            return None
        if written is None and len(self._written) >= SUBJECTS_MAX:
            self._written.clear()
        self._written[subject] = [now_ms, 0]
        return 0 if written is None else written[1]


def quoted(text: str) -> str:
    """A text of a client's choice, cut, and with everything but ASCII letters, digits and marks as an escape."""
    return json.dumps(text if len(text) <= TEXT_LETTERS_MAX else text[:TEXT_LETTERS_MAX] + "...")


def _line(requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> str:
    return (
        f"principal={quoted(requester.principal)} host={quoted(requester.host)} operation={operation.name} "
        f"resource={resource_type.name} {quoted(name)} listener={quoted(requester.listener)}"
    )


def _facts(requester: Requester) -> dict[str, str]:
    return {"listener": requester.listener}


def _more(left_out: int) -> str:
    return f" ({left_out} more since the last such line)" if left_out else ""
