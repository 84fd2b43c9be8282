"""Explains an error about a missing permission: the principal, the operation, the resource, and the command that shows the permissions."""

from __future__ import annotations

import re

from ottla.base.acls import CLUSTER_NAME
from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.command import Args, Command, merged, pointing_to

OPTIONS = {"topic": "--topic", "group": "--group", "transactional_id": "--transactional-id"}
"""Options of `ottla security check` by the resource in a message."""
_NAMES_ALL = re.compile(r" may not \w+ \w+ '")
"""Matches a refusal of our brokers that names operation, kind of resource and resource."""
_RESOURCE = re.compile(r"\b(topic|group|transactional_id) '([^']+)'", re.IGNORECASE)


def explained(error: ApiError, command: Command, args: Args) -> ApiError:
    """Returns the error with an explanation if it is about a permission. If the broker names no operation or no resource, the explanation
    has the operation and resource that `command` needs, if they are known."""
    if error.code not in (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        return error
    text, topics = error.message, _topics(args)
    if not _NAMES_ALL.search(text):
        from ottla.analysis.access import own_principal
        from ottla.cli.options import properties_of

        who = own_principal(properties_of(args)) or "this client"
        found = _RESOURCE.search(text)
        name = found[2] if found is not None else topics[0] if topics else ""
        kind = command.needs.rpartition(" ")[2]
        if kind == "CLUSTER" and error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            text = f"{who} may not {command.needs} {CLUSTER_NAME!r}"
        elif kind == "TOPIC" and name and error.code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            text = f"{who} may not {command.needs} {name!r}"
        else:
            text = f"{text or error.code.name}: {who} lacks a right"
    found = _RESOURCE.search(text)
    option = f" {OPTIONS[found[1].lower()]} {found[2]}" if found is not None else ""
    if not option and topics and error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        option = f" --topic {topics[0]}"
    return ApiError(error.code, pointing_to(f"ottla security check{option}", text))


def _topics(args: Args) -> list[str]:
    """Returns the topics that the command line names."""
    given = [getattr(args, name, None) or [] for name in ("name", "names", "topic")]
    return merged(*([one] if isinstance(one, str) else one for one in given))
