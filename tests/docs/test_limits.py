"""The numbers on the page of limits are those of the code: each row of its table, and nothing beside them."""

from __future__ import annotations

import re

import pytest

from ottla.base import identifiers
from ottla.base.config import BROKER_SETTINGS
from ottla.base.loop import fair_slots
from ottla.cluster import delegation_tokens
from ottla.controller import api, configs, plans, settings_memory, state, topics
from ottla.groups import settings as group_settings
from ottla.groups.share import group as share_group
from ottla.groups.share import heartbeat as share_heartbeat
from ottla.handlers.access import alter_user_scram_credentials, create_delegation_token
from ottla.handlers.groups import coordination
from ottla.handlers.records import fetch
from ottla.handlers.share_groups import acknowledgements as share_acknowledgements
from ottla.handlers.share_groups import dead_letters, share_group_heartbeat
from ottla.handlers.transactions import add_partitions_to_txn
from ottla.machine import host
from ottla.replication import fetch_sessions, reads
from ottla.server import coordinators, listener, node
from ottla.sharing import partition_memory, state_shard
from ottla.sharing import sessions as share_sessions
from ottla.transactions import shard as transactions_shard
from ottla.wire import decoding
from tests.docs.pages import DOCS

_PAGE = (DOCS / "limits.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", _PAGE.partition("## Numbers")[2], re.MULTILINE))
LIMITS = {
    "partitions of a Fetch without a session": [fetch.PARTITIONS_MAX],
    "partitions of a session": [fetch_sessions.SESSION_PARTITIONS_MAX],
    "new partitions in one": [BROKER_SETTINGS["ottla.create.topics.partitions.max"].default],
    "partitions of all topics": [
        BROKER_SETTINGS["ottla.topics.partitions.max"].default,
        topics.PARTITION_BYTES >> 10,
        BROKER_SETTINGS["ottla.memory.max.bytes"].default // topics.PARTITION_BYTES,
    ],
    "sessions of fetches": [fetch_sessions.PARTITIONS_MAX, fair_slots.SESSION_PARTITION_BYTES >> 10],
    "sessions of share groups": [share_sessions.PARTITIONS_MAX, fair_slots.SESSION_PARTITION_BYTES >> 10],
    "characters in the id": [identifiers.ID_CHARACTERS_MAX],
    "characters in a client id": [identifiers.CLIENT_ID_CHARACTERS_MAX],
    "members of a group": [BROKER_SETTINGS["group.max.size"].default],
    "members of a share group": [BROKER_SETTINGS["group.share.max.size"].default],
    "members of a streams group": [BROKER_SETTINGS["group.streams.max.size"].default],
    "answers that wait for replicas": [host.HELD_MAX],
    "topics that a member of a new": [coordination.SUBSCRIBED_TOPICS_MAX],
    "topics that a member of a share": [share_group_heartbeat.TOPICS_MAX],
    "topics that all members": [share_heartbeat.TOPICS_MAX],
    "topics, partitions and batches": [share_acknowledgements.NAMED_MAX],
    "share partitions of one acknowledgement": [share_sessions.SESSION_PARTITIONS_MAX],
    "partitions that one request adds": [add_partitions_to_txn.PARTITIONS_MAX],
    "producer ids": [BROKER_SETTINGS["ottla.producers.max"].default],
    "aborted transactions": [reads.ABORTED_MAX],
    "users, client ids": [configs.QUOTA_ENTITIES_MAX],
    "bytes of the name of a user, client id": [plans.NAME_BYTES_MAX],
    "bytes of the name of a user with SCRAM": [alter_user_scram_credentials.NAME_BYTES_MAX],
    "delegation tokens": [delegation_tokens.TOKENS_MAX, delegation_tokens.TEXT_BYTES_MAX >> 20],
    "renewers": [create_delegation_token.RENEWERS_MAX],
    "settings of one resource": [api.CONFIG_ENTRIES_MAX],
    "things that a request names": [decoding.REQUEST_OBJECTS_MAX],
    "bytes of an answer": [BROKER_SETTINGS["ottla.response.max.bytes"].default >> 20],
    "memory of members": [],
    "memory of settings": [],
    "memory of stored states": [],
    "memory of partitions": [],
    "copies of dead letters": [dead_letters.COPIES_MAX],
    "memory of metrics": [(BROKER_SETTINGS["ottla.memory.max.bytes"].default // node.TELEMETRY_PART) >> 20],
    "connections by TLS": [
        listener.TLS_CONNECTION_BYTES,
        BROKER_SETTINGS["ottla.memory.max.bytes"].default // listener.TLS_CONNECTION_BYTES,
    ],
    "memory of answers": [],
}


def numbers(cell: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"(?<![\w.])\d[\d,]*\b", cell)]


def test_every_row_is_compared() -> None:
    rows = [what for what in ROWS if what not in ("What", "---")]
    assert [[start for start in LIMITS if what.startswith(start)] for what in rows] == [[start] for start in LIMITS]


@pytest.mark.parametrize("start", LIMITS)
def test_a_number(start: str) -> None:
    (said,) = [cell for what, cell in ROWS.items() if what.startswith(start)]
    assert numbers(said) == LIMITS[start]


def test_the_memory_of_coordinators() -> None:
    (what,) = [what for what in ROWS if what.startswith("memory of members")]
    assert numbers(what)[:2] == [share_group.TOPIC_BYTES, share_group.PARTITION_BYTES]
    assert numbers(what)[2:] == [group_settings.OFFSET_BYTES, transactions_shard.ID_BYTES, transactions_shard.PARTITION_BYTES]
    assert (coordinators.MEMORY_PARTS, ROWS[what]) == (4, "each a quarter of `ottla.memory.max.bytes`")


def test_the_memory_of_share_groups() -> None:
    """What is in flight without room stands in the last column."""
    (states,) = [what for what in ROWS if what.startswith("memory of stored states")]
    (partitions,) = [what for what in ROWS if what.startswith("memory of partitions")]
    assert numbers(states) == [state_shard.STATE_BYTES, state_shard.BATCH_BYTES]
    assert numbers(partitions) == [partition_memory.PARTITION_BYTES, partition_memory.RUN_BYTES]
    assert ROWS[states] == ROWS[partitions] == "a quarter of `ottla.memory.max.bytes`"
    assert f"at most {partition_memory.IN_FLIGHT_WHEN_SHORT} records in flight" in _PAGE


def test_the_memory_of_settings() -> None:
    (what,) = [what for what in ROWS if what.startswith("memory of settings")]
    assert numbers(what) == [state.LONG_VALUE_FACTOR, state.LONG_VALUE_BYTES, state.RESOURCE_BYTES]
    assert (settings_memory.MEMORY_PARTS, ROWS[what]) == (4, "a quarter of `ottla.memory.max.bytes`")


def test_the_two_group_limits_are_one_number_and_sessions_of_both_kinds_are_alike() -> None:
    assert BROKER_SETTINGS["group.max.size"].default == BROKER_SETTINGS["group.consumer.max.size"].default
    assert fetch_sessions.SESSION_PARTITIONS_MAX == share_sessions.SESSION_PARTITIONS_MAX
