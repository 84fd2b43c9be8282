"""Limits on names that clients choose. Kafka limits only names of topics; a string of the protocol has up to 32,767 bytes.

Names of groups, members and transactions are kept in memory, in the coordinators' logs and in many answers, so long ones are refused.
"""

from __future__ import annotations

ID_CHARACTERS_MAX = 1000
"""Characters of the id of a group, a member, a static instance or a transaction, and of a rack's name."""
TOPIC_NAME_CHARACTERS_MAX = 249
"""Characters of a topic's name: Kafka's limit, because name and partition number form the name of a directory."""
CLIENT_ID_CHARACTERS_MAX = 255
"""Characters of a client id. A longer client id is cut and not refused."""


def is_too_long(*names: str | None) -> bool:
    """Whether one of these ids has more characters than an id may have."""
    return max(map(len, filter(None, names)), default=0) > ID_CHARACTERS_MAX
