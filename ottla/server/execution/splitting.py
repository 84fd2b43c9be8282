"""Splits a large request into small requests of the same API, and joins their answers. Handlers are not aware of it.

`ITEMS` is the table of the arrays that are split. `gather` merges repeated names, `cut` makes requests with a limited number of elements,
and `JoinedAnswer` collects the answers. All of them work in steps, so that other work can run in between.

An entry of the table names an array of the request and an array of the answer. The answer has one element for each element of the request;
the entry also names the fields that identify an element in both. If the elements contain arrays themselves (topics, then partitions),
`inner` is the entry of these arrays. Requests without an entry are answered as a whole: they have no long array, only brokers of
the cluster may send them, their elements depend on each other (an assignment, a session), or their handler works in steps by itself
(CreateTopics).

If a request names an element more than once, the element is answered once (`ONCE`): only the last repetition is executed, as in Kafka,
which keeps such requests in maps. If a repetition is an error, two repetitions are kept (`TWICE`), so that the handler refuses them. If
each repetition carries its own data, all are kept (`ALL`). Elements that contain arrays are always merged.

A split request has the same effect as its pieces, sent one after the other. A commit of thousands of offsets therefore writes several
record batches.

The answer to a request with ten thousand elements may consist of a million objects. Objects take ten times the memory of their encoded
bytes, and the garbage collector traverses them repeatedly. The elements of each piece's answer are therefore encoded immediately, and the
whole answer is joined from bytes. If one element was cut into several pieces, the answers to these pieces are kept as objects until all of
them have arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from ottla.base.errors import ErrorCode
from ottla.server.execution.disposal import dispose_elements
from ottla.wire.apis import KEYS
from ottla.wire.schema import Struct

ELEMENTS_PER_STEP = 500
PARTS_AT_ONCE = 4096
"""Encoded parts are joined when there are this many, because it takes 0.1 s to join a million small parts in one step."""
_NONE = [None] * ELEMENTS_PER_STEP


# The table


class Repeats(Enum):
    """How many elements of the same name are kept."""

    ONCE = 1
    TWICE = 2
    ALL = 3


class Items(NamedTuple):
    """An array of a request, and the matching array of the answer."""

    request: str
    response: str
    names: tuple[str, ...]
    """The fields that identify an element of the request. Empty if the element is a string or a number, or if repetitions are not looked
    for."""
    response_names: tuple[str, ...]
    """The fields that identify an element of the answer; empty if its position identifies it."""
    repeats: Repeats
    inner: Items | None
    at_once: int
    """Maximum number of innermost elements in a piece: a few milliseconds of work."""
    since: int
    """The first version of the request that has this array."""
    is_amplified: bool
    """Whether the answer to an element may be many times as large as the element."""
    key: Callable[[Any], Hashable]
    response_key: Callable[[Any], Hashable]


def _items(
    request: str,
    response: str,
    names: str = "",
    response_names: str | None = None,
    inner: Items | None = None,
    *,
    repeats: Repeats = Repeats.ONCE,
    at_once: int = 200,
    since: int = 0,
    is_amplified: bool = False,
    key: Callable[[Any], Hashable] | None = None,
) -> Items:
    asked = tuple(names.split())
    answered = asked if response_names is None else tuple(response_names.split())
    request_key, response_key = (key or (attrgetter(*names) if names else _itself) for names in (asked, answered))
    return Items(request, response, asked, answered, repeats, inner, at_once, since, is_amplified, request_key, response_key)


def _itself(value: Hashable) -> Hashable:
    return value


def _marker(marker: Any) -> Hashable:
    """Returns the identity of a marker: producer, epochs and result. Answers have only the producer."""
    return marker.producer_id, *[getattr(marker, name, None) for name in ("producer_epoch", "coordinator_epoch", "transaction_result")]


def _entity(entry: Any) -> Hashable:
    """Returns the identity of a quota: the types and names of its entity."""
    return tuple(sorted((part.entity_type, part.entity_name or "", part.entity_name is None) for part in entry.entity))


_ALL, _TWICE = Repeats.ALL, Repeats.TWICE
_PARTITIONS = _items("partitions", "partitions", "partition_index")
_INDEXES = _items("partition_indexes", "partitions", "", "partition_index")
_DATA = _items("partitions", "partitions", "partition_index", repeats=_ALL)
_RESOURCE = "resource_type resource_name"

ITEMS: dict[int, Sequence[Items]] = {
    KEYS[name]: lines
    for name, lines in {
        "Produce": [
            _items(
                "topic_data", "responses", "name topic_id", None,
                _items("partition_data", "partition_responses", "index", repeats=_ALL), repeats=_ALL, at_once=500,
            )
        ],
        "ListOffsets": [
            _items("topics", "topics", "name", None, _items("partitions", "partitions", "partition_index", repeats=_TWICE), at_once=100)
        ],
        "Metadata": [_items("topics", "topics", "name topic_id", at_once=100)],
        "OffsetCommit": [_items("topics", "topics", "name topic_id", None, _DATA, at_once=500)],
        "OffsetFetch": [
            _items("topics", "topics", "name", None, _INDEXES, at_once=500),
            _items(
                "groups", "groups", "group_id", None,
                _items("topics", "topics", "name topic_id", None, _INDEXES), at_once=100, since=8, is_amplified=True,
            ),
        ],
        "FindCoordinator": [_items("coordinator_keys", "coordinators", "", "key", since=4)],
        "LeaveGroup": [_items("members", "members", "member_id group_instance_id", repeats=_ALL, since=3, at_once=50)],
        "DescribeGroups": [_items("groups", "groups", "", "group_id", at_once=5, is_amplified=True)],
        "DeleteTopics": [
            _items("topic_names", "responses", "", "name", repeats=_TWICE, at_once=100),
            _items("topics", "responses", "name topic_id", repeats=_TWICE, since=6, at_once=100),
        ],
        "DeleteRecords": [_items("topics", "topics", "name", None, _PARTITIONS, at_once=50)],
        "OffsetForLeaderEpoch": [_items("topics", "topics", "topic", None, _items("partitions", "partitions", "partition"))],
        "TxnOffsetCommit": [_items("topics", "topics", "name topic_id", None, _DATA, at_once=500)],
        "CreateAcls": [_items("creations", "results", repeats=_ALL, at_once=500)],  # each piece rewrites all ACLs of its resources
        "DeleteAcls": [_items("filters", "filter_results", repeats=_ALL, at_once=10, is_amplified=True)],
        "DescribeConfigs": [_items("resources", "results", _RESOURCE, at_once=5, is_amplified=True)],
        "AlterConfigs": [_items("resources", "responses", _RESOURCE, repeats=_TWICE, at_once=5)],
        "IncrementalAlterConfigs": [_items("resources", "responses", _RESOURCE, repeats=_TWICE, at_once=5)],
        "CreatePartitions": [_items("topics", "results", "name", repeats=_TWICE, at_once=50)],
        "DeleteGroups": [_items("groups_names", "results", "", "group_id", at_once=50)],
        "ElectLeaders": [
            _items(
                "topic_partitions", "replica_election_results", "topic", None,
                _items("partitions", "partition_result", "", "partition_id"),
            )
        ],
        "AlterPartitionReassignments": [_items("topics", "responses", "name", None, _DATA)],
        "ListPartitionReassignments": [_items("topics", "topics", "name", None, _INDEXES)],
        "OffsetDelete": [_items("topics", "topics", "name", None, _PARTITIONS, at_once=20)],
        "AlterClientQuotas": [_items("entries", "entries", repeats=_TWICE, key=_entity, at_once=50)],
        "DescribeUserScramCredentials": [_items("users", "results", "name", "user", repeats=_TWICE)],
        "DescribeQuorum": [
            _items("topics", "topics", "topic_name", None, _items("partitions", "partitions", "partition_index"), at_once=500)
        ],
        "WriteTxnMarkers": [
            _items("markers", "markers", "producer_id", None, _items("topics", "topics", "name", None, _INDEXES), key=_marker)
        ],
        **{
            name: [_items("topics", "results", "topic_id", None, _items("partitions", "partitions", "partition"))]
            for name in ("InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState",
                         "ReadShareGroupStateSummary")
        },
        "AddPartitionsToTxn": [
            _items("transactions", "results_by_transaction", "transactional_id", repeats=_ALL, since=4, at_once=5),
        ],
        "DescribeProducers": [_items("topics", "topics", "name", None, _INDEXES, is_amplified=True)],
        "DescribeTransactions": [_items("transactional_ids", "transaction_states", "", "transactional_id", at_once=50, is_amplified=True)],
        "ConsumerGroupDescribe": [_items("group_ids", "groups", "", "group_id", at_once=5, is_amplified=True)],
        "ShareGroupDescribe": [_items("group_ids", "groups", "", "group_id", at_once=5, is_amplified=True)],
        "StreamsGroupDescribe": [_items("group_ids", "groups", "", "group_id", at_once=5, is_amplified=True)],
        "DescribeShareGroupOffsets": [
            _items(
                "groups", "groups", "group_id", None,
                _items("topics", "topics", "topic_name", None, _items("partitions", "partitions", "", "partition_index")),
                at_once=50, is_amplified=True,
            )
        ],
        "AlterShareGroupOffsets": [_items("topics", "responses", "topic_name", None, _PARTITIONS)],
        "DeleteShareGroupOffsets": [_items("topics", "responses", "topic_name", at_once=50)],
    }.items()
}  # fmt: skip


def items_of(key: int, version: int) -> Items | None:
    """Returns the table's entry for one version of a request; None if the request is answered as a whole."""
    found = [line for line in ITEMS.get(key, ()) if line.since <= version]
    return found[-1] if found else None


# Cutting


def item_count(body: Any, items: Items, count_max: int = 1 << 62) -> int:
    """Returns the number of innermost elements of a request; stops counting above `count_max`. A null or empty array is counted as one."""
    elements = getattr(body, items.request)
    inner = items.inner
    if not elements or inner is None:
        return len(elements or ()) or 1
    count = 0
    for element in elements:
        count += item_count(element, inner, count_max - count)
        if count > count_max:
            break
    return count


def has_many_items(body: Any, items: Items | None) -> bool:
    return items is not None and item_count(body, items, 1) > 1


def gather(body: Any, items: Items) -> Iterator[None]:
    """Merges elements that contain arrays and have the same name, and drops repetitions of other elements as their `repeats` says, in
    place. A step handles a bounded number of elements, at any depth."""
    yield from _gather(body, items, _Work())


class _Work:
    """Counts the elements of complete arrays since the last step, so that many short arrays are handled in one step."""

    count = 0

    def is_enough(self, count: int) -> bool:
        self.count += count
        if self.count < ELEMENTS_PER_STEP:
            return False
        self.count = 0
        return True


def _gather(body: Any, items: Items, work: _Work) -> Iterator[None]:
    elements = getattr(body, items.request)
    if not elements or (items.repeats is Repeats.ALL and items.inner is None):
        return
    kept: list[Any] = []
    counts: dict[Hashable, int] = {}
    places: dict[Hashable, int] = {}
    key, inner = items.key, items.inner
    may_repeat = inner is None and items.repeats.value > 1
    for number, element in enumerate(elements, 1):
        name = key(element)
        place = places.get(name)
        if place is None or (may_repeat and counts[name] < items.repeats.value):
            if may_repeat:
                counts[name] = counts.get(name, 0) + 1
            places[name] = len(kept)
            kept.append(element)
        elif inner is None:
            kept[place] = _joined_keys(kept[place], element)
        else:
            _add_inner(kept[place], element, inner)
        if not number % ELEMENTS_PER_STEP:
            elements[number - ELEMENTS_PER_STEP : number] = _NONE  # repetitions are freed a few at a time
            yield
    setattr(body, items.request, kept)
    if work.is_enough(len(elements)):
        yield
    if inner is not None:
        for element in kept:
            yield from _gather(element, inner, work)


def _joined_keys(known: Any, again: Any) -> Any:
    """Returns the later of two elements of one name. For DescribeConfigs, this element then asks for the settings of both, or for all if
    one of the two asked for all.
    """
    wanted = getattr(known, "configuration_keys", ())
    if wanted == ():
        return again
    more = again.configuration_keys
    if more and wanted:
        again.configuration_keys = list(dict.fromkeys([*wanted, *more]))
    else:
        again.configuration_keys = None
    return again


def _add_inner(known: Any, again: Any, inner: Items) -> None:
    elements, more = getattr(known, inner.request), getattr(again, inner.request)
    if elements is None or more is None:
        setattr(known, inner.request, None)
    else:
        elements += more


def cut(body: Any, items: Items) -> Iterator[tuple[Any, bool]]:
    """Yields requests of at most `items.at_once` innermost elements each, which together have all elements of `body`, and whether the
    request completes its last element. If it does not, the next request continues the element."""
    for some, is_end in _cut(getattr(body, items.request), items, items.at_once):
        yield _with(body, items.request, some), is_end


def _cut(elements: list[Any], items: Items, count_max: int) -> Iterator[tuple[list[Any], bool]]:
    inner = items.inner
    if inner is None:
        for first in range(0, len(elements), count_max):
            yield elements[first : first + count_max], True
        return
    piece: list[Any] = []
    count = 0
    for element in elements:
        own = item_count(element, inner, count_max)
        if piece and count + own > count_max:
            yield piece, True
            piece, count = [], 0
        if own > count_max:
            yield from _cut_element(element, inner, count_max)
        else:
            piece.append(element)
            count += own
    if piece:
        yield piece, True


def _cut_element(element: Any, inner: Items, count_max: int) -> Iterator[tuple[list[Any], bool]]:
    last: list[Any] | None = None
    for some, _is_end in _cut(getattr(element, inner.request), inner, count_max):
        if last is not None:
            yield last, False
        last = [_with(element, inner.request, some)]
    assert last is not None, "an element of many items has no piece"
    yield last, True


def _with(struct: Any, name: str, value: list[Any]) -> Any:
    """Returns a copy of a struct with another value of one field."""
    copy = object.__new__(type(struct))
    for field in struct.__fields__:
        setattr(copy, field.name, getattr(struct, field.name))
    setattr(copy, name, value)
    return copy


# Joining


def joined(parts: list[list[Any]], items: Items) -> Generator[None, None, list[Any]]:
    """Returns the elements of several answers. Elements that contain arrays are merged by name."""
    into: list[Any] = []
    known: dict[Hashable, Any] = {}
    for elements in parts:
        yield from _join(into, elements, items, known)
    return into


def _join(into: list[Any], elements: Any, items: Items, known: dict[Hashable, Any]) -> Iterator[None]:
    inner = items.inner
    if inner is None:
        into.extend(elements)
        return
    for element in elements:
        name = items.response_key(element)
        same = known.get(name)
        if same is None:
            into.append(element)
            known[name] = (element, {})
            if inner.inner is not None:
                own = getattr(element, inner.response)
                setattr(element, inner.response, [])
                yield from _join(getattr(element, inner.response), own, inner, known[name][1])
        else:
            first, of_first = same
            join_rest(first, element)
            yield from _join(getattr(first, inner.response), getattr(element, inner.response), inner, of_first)
        yield


def join_rest(first: Any, other: Any) -> None:
    """Merges the other fields of an answer into `first`, which gets the first error code with its message, the longest throttle time, and
    the addresses of all leaders."""
    for field in first.__fields__:
        if field.name == "error_code" and not first.error_code:
            first.error_code = other.error_code
            if hasattr(first, "error_message"):
                first.error_message = other.error_message
        elif field.name == "throttle_time_ms":
            first.throttle_time_ms = max(first.throttle_time_ms, other.throttle_time_ms)
        elif field.name == "node_endpoints":
            first.node_endpoints += [found for found in other.node_endpoints if found not in first.node_endpoints]


def refuse(response_class: Callable[..., Any], body: Any, items: Items, code: ErrorCode, message: str) -> Any:
    """Returns an answer that refuses every element of a request."""
    elements = _refused(_element_class(response_class, items), getattr(body, items.request), items, code, message)
    return response_class(**{items.response: elements})


def _element_class(owner: Any, items: Items) -> type[Struct]:
    (field,) = [field for field in owner.__fields__ if field.name == items.response]
    found: type[Struct] = field.struct
    return found


def _refused(cls: type[Struct], elements: Any, items: Items, code: ErrorCode, message: str) -> list[Any]:
    names = {field.name for field in cls.__fields__}
    refused = []
    for element in elements or ():
        values = [getattr(element, name) for name in items.names] or [element]
        known: dict[str, Any] = dict(zip(items.response_names, values, strict=True)) if items.response_names else {}
        if "error_code" in names:
            known["error_code"] = code
        if "error_message" in names:
            known["error_message"] = message
        if items.inner is not None:
            of = _refused(_element_class(cls, items.inner), getattr(element, items.inner.request), items.inner, code, message)
            known[items.inner.response] = of
        refused.append(cls(**known))
    return refused


class Encoder(Protocol):
    """Encodes the answers of one API (`server/execution/route.py`)."""

    @property
    def element_writer(self) -> Callable[[list[Any], list[Any]], Iterator[None]]: ...

    def spliced_frame(self, shell: Any, count: int, written: list[Any], correlation_id: int) -> list[Any]: ...


class JoinedAnswer:
    """Collects the answers of pieces by their numbers. The pieces of one element that was cut form a run. A piece of whole elements is a
    run by itself. The number of a run is the number of its first piece."""

    def __init__(self, route: Encoder, items: Items) -> None:
        self._route = route
        self._items = items
        self.shell: Any = None
        """The response without its elements: the first answer, merged with the other fields of later answers."""
        self._run_of: list[int] = []  # by piece: its run
        self._missing: dict[int, int] = {}  # by run: the number of missing answers
        self._is_open = False
        self._waiting: dict[int, dict[int, list[Any]]] = {}  # by run and piece: elements that are not encoded yet
        self._written: dict[int, list[Any]] = {}  # by run: encoded elements
        self._count = 0
        self.size = 0
        """Encoded bytes so far."""

    def expect(self, *, is_end: bool) -> int:
        """Announces a piece, and returns its number. `is_end`: the piece completes its last element."""
        number = len(self._run_of)
        run = self._run_of[-1] if self._is_open else number
        self._run_of.append(run)
        self._missing[run] = self._missing.get(run, 0) + 1
        self._is_open = not is_end
        return number

    def add(self, number: int, response: Any) -> Iterator[None]:
        """Adds the answer of a piece: None if the client wants no answer. Yields between the steps of encoding."""
        run = self._run_of[number]
        self._missing[run] -= 1
        if response is not None:
            name = self._items.response
            elements = getattr(response, name) or []
            setattr(response, name, [])
            if self.shell is None:
                self.shell = response
            else:
                join_rest(self.shell, response)
            self._waiting.setdefault(run, {})[number] = elements
        is_whole = not self._missing[run] and not (self._is_open and run == self._run_of[-1])
        if is_whole and run in self._waiting:
            yield from self._encode(run, self._waiting.pop(run))

    def _encode(self, run: int, answers: dict[int, list[Any]]) -> Iterator[None]:
        elements = list(next(iter(answers.values())))
        if len(answers) > 1:
            elements = yield from joined([answers[number] for number in sorted(answers)], self._items)
        answers.clear()
        parts: list[Any] = []
        pieces: list[Any] = []
        for _ in self._route.element_writer(elements, parts):
            if len(parts) >= PARTS_AT_ONCE:
                pieces.append(b"".join(parts))
                parts.clear()
            yield
        pieces.append(b"".join(parts))
        self._written[run] = pieces
        self._count += len(elements)
        self.size += sum(map(len, pieces))
        yield from dispose_elements(elements)

    def frame(self, correlation_id: int) -> list[Any]:
        """Returns the whole frame, or no bytes if the client wants no answer."""
        if self.shell is None:
            return []
        written = [piece for run in sorted(self._written) for piece in self._written[run]]
        return self._route.spliced_frame(self.shell, self._count, written, correlation_id)
