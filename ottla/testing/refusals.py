"""Makes the answer to a request as a broker would that refuses it with a given error. The proxy for faults (`faults.py`) uses it.

Most answers have one error code for the whole request. The answers of `_BY_ITEM` have an error code for each topic, partition or group of
the request, and all these items are refused. An answer to Metadata must name the brokers. The real broker therefore answers it, and the
error is put into this answer.
"""

from __future__ import annotations

from typing import Any

from ottla.wire.apis import KEYS
from ottla.wire.framing import load
from ottla.wire.schema import Field, Response, Struct

METADATA, OFFSET_FETCH = KEYS["Metadata"], KEYS["OffsetFetch"]

_BY_ITEM = frozenset(
    KEYS[name]
    for name in (
        "Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", "FindCoordinator", "CreateTopics", "DeleteTopics",
        "AddPartitionsToTxn", "TxnOffsetCommit", "DeleteGroups", "StageRecords", "AttachRecords", "MirrorRecords",
    )
)  # fmt: skip
_ASKED = {
    "coordinators": ("coordinator_keys",),
    "groups": ("groups",),
    "partition_responses": ("partition_data",),
    "partitions": ("partitions", "partition_indexes"),
    "responses": ("topic_data", "topics", "topic_names"),
    "results": ("groups_names",),
    "results_by_partition": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "topics": ("topics",),
}
"""For each list in an answer: the names of the list in the request that it answers item by item. The first name that the request's version
has is used."""
_CODES = ("error_code", "partition_error_code")
_UNKNOWN = ("base_offset", "committed_offset", "high_watermark", "node_id", "port")
"""Fields that are -1 in a refusal."""


def is_altered(key: int) -> bool:
    """Whether the error is put into the broker's own answer."""
    return key == METADATA


def alter(answer: Any, code: int) -> Any:
    """Puts the error into every topic of a Metadata answer, and removes its partitions."""
    for topic in answer.topics:
        topic.error_code = code
        topic.partitions = []
    return answer


def can_refuse(key: int) -> bool:
    return key in _BY_ITEM or is_altered(key) or any(field.name == "error_code" for field in load(key)[1].__fields__)


def refuse(key: int, version: int, request: Any, code: int) -> Response:
    """Returns the response to `request` with the error `code` for everything."""
    response_class = load(key)[1]
    is_whole = key not in _BY_ITEM or (key == OFFSET_FETCH and 2 <= version < 8)
    lists = {} if is_whole else _lists(response_class, request, version, code)
    fields = _fields(response_class, version)
    if "error_code" in fields and not any(lists.values()):  # such as a Fetch of a session without topics
        lists = {"error_code": code}
    if "session_id" in fields and lists.get("responses"):
        lists["session_id"] = request.session_id
    return response_class(**_unknown(fields), **lists)


def _fields(kind: type[Struct], version: int) -> dict[str, Field]:
    return {field.name: field for field in kind.__fields__ if field.is_in(version)}


def _unknown(fields: dict[str, Field]) -> dict[str, Any]:
    return {name: -1 for name in _UNKNOWN if name in fields}


def _lists(kind: type[Struct], asked: Struct, version: int, code: int) -> dict[str, Any]:
    """Returns the lists of a struct in the answer: a refusal for each item of the request's lists."""
    given = _fields(type(asked), version)
    found = {}
    for name, field in _fields(kind, version).items():
        source = next((one for one in _ASKED.get(name, ()) if one in given), None)
        if source is not None:
            found[name] = [_refused(field.struct, item, version, code) for item in getattr(asked, source) or ()]
    return found


def _refused(kind: type[Struct], asked: Any, version: int, code: int) -> Any:
    """Returns the refusal of an item. It has the first field of the item (a name or number), and its topic id."""
    fields = _fields(kind, version)
    values = _unknown(fields)
    if isinstance(asked, Struct):
        given = _fields(type(asked), version)
        values[next(iter(fields))] = getattr(asked, next(iter(given)))
        values.update({name: getattr(asked, name) for name in ("topic_id",) if name in fields and name in given})
    else:
        values[next(iter(fields))] = asked
    codes = dict.fromkeys((name for name in _CODES if name in fields), code)
    values.update(codes or _lists(kind, asked, version, code))
    if "records" in fields:
        values["records"] = b""
    return kind(**values)
