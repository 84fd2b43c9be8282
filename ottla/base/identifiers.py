"""Bounds of the names that clients choose: Kafka bounds topics' names only, and a string of the protocol has up to 32,767 bytes.

Names of groups, members and transactions are kept in memory, in the coordinators' logs and in many answers, so long ones are refused.
"""

from __future__ import annotations

ID_CHARACTERS_MAX = 1000
"""Of the id of a group, a member, a static instance, a transaction, and of a rack's name."""
TOPIC_NAME_CHARACTERS_MAX = 249
"""Kafka's bound: a topic's name and a partition's number together are the name of a directory."""
CLIENT_ID_CHARACTERS_MAX = 255
"""Of a client id, which is cut and not refused: it only says who asks."""


def is_too_long(*names: str | None) -> bool:
    """Whether one of these ids has more characters than an id may have."""
    return any(name is not None and len(name) > ID_CHARACTERS_MAX for name in names)
