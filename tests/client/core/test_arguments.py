"""Wrong arguments of public calls are a `UsageError` of one line that says what is expected, and send nothing."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ottla.client
from ottla.base.types import TopicPartition
from ottla.client import aio
from ottla.client.blocking.client import Client
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.client.blocking.share_consumer import ShareConsumer
from ottla.client.blocking.transaction import Transaction
from ottla.client.core import admin, group_admin, replica_admin
from ottla.client.core.arguments import Arguments, checked
from ottla.client.core.fetching import Fetched
from ottla.client.core.operation import Operation
from ottla.client.core.share_session import AcquiredRecord
from ottla.client.core.staging import StagedChunk
from ottla.client.errors import UsageError
from ottla.wire.batch_header import read_batch_header
from ottla.wire.records import Record, encode_batch

A = TopicPartition("t", 0)
NOWHERE = "127.0.0.1:1"
RECORD = Record(0, 0, None, b"v", ())
BATCH = encode_batch([RECORD])
RIGHT: dict[str, Any] = {
    "assignment": {}, "attempt_id": 1, "batches": {A: [BATCH]}, "before": {A: 1}, "bootstrap": NOWHERE, "changes": {"a": "b"},
    "chunks": {A: {0: b"x"}}, "delivery": AcquiredRecord(A, read_batch_header(BATCH), RECORD, 1), "end": 10, "group": "g",
    "group_id": "g", "manifest": {A: [StagedChunk(1, 0, 1, 70, 1)]}, "name": "t", "names": ["t"], "offset": 1, "offsets": {A: 1},
    "partition": A, "partitions": [A], "plan": {A: [1]}, "positions": {A: 0}, "resource_type": 2, "start": 0, "timeout_s": 1.0,
    "token": bytes(16), "topic": "t", "topics": ["t"], "total": 3, "transactional_id": "x", "value": b"v", "values": [b"v"],
    "wanted": {A: -1},
}  # fmt: skip
"""A right value for each parameter without a default."""

NO_VALUE = object()
WRONG: dict[str, list[Any]] = {
    "int": [None, "1", 1.5, [1]],
    "a number": [None, "1", float("nan"), [1.0]],
    "str": [b"t", 5, None, ["t"]],
    "bytes": ["x", 5, None],
    "bool": [None, "no", 2],
    "TopicPartition(str, int)": [("t", 0), "t-0", TopicPartition("t", "0"), TopicPartition(b"t", 0), None],  # type: ignore[arg-type]
    "a mapping from TopicPartition(str, int) to int": [
        [A], {"t": 0}, {("t", 0): 0}, {A: "0"}, {A: None}, {TopicPartition("t", "0"): 0}, None, 5,  # type: ignore[arg-type]
    ],
    "a list of TopicPartition(str, int)": [A.topic, [("t", 0)], ["t"], 5, [None]],
    "a list of str": ["orders", b"orders", [7], None, 5],
    "a function": ["f", 5],
}  # fmt: skip
"""Wrong values for the parameters that are declared with these kinds. Other parameters get `NO_VALUE` only."""


class World:
    """The public objects of a client whose brokers cannot be reached. A call that tries to reach one raises `ConnectError`."""

    def __init__(self) -> None:
        self.cluster = Cluster(NOWHERE, timeout_s=0.5)
        self.client = Client(self.cluster)
        self.awaiting = aio.AsyncClient(aio.AsyncCluster(NOWHERE, timeout_s=0.5))
        self.producer = self.client.producer()
        self.consumer = self.client.consumer("g")
        self.share_consumer = ShareConsumer(self.cluster, "g")
        self.transaction = self.client.transaction("x")

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.producer._leave_behind()
        self.consumer._drop_connections()
        self.client.close()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World() as world:
        yield world


OWNERS: dict[str, type] = {
    "client": Client,
    "awaiting": aio.AsyncClient,
    "producer": Producer,
    "consumer": Consumer,
    "share_consumer": ShareConsumer,
    "transaction": Transaction,
}
UNCHECKED = {"run", "__init__", "__exit__", "__aexit__"}
"""`AsyncClient.run` takes a conversation and its arguments. Programs do not make clients and transactions themselves."""


def _methods() -> Iterator[tuple[str, str]]:
    for owner, kind in OWNERS.items():
        for name in dir(kind):
            method = inspect.getattr_static(kind, name)
            if not name.startswith("_") and name not in UNCHECKED and callable(method) and not isinstance(method, property):
                yield owner, name


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "connect": ottla.client.connect,
    "aio.connect": aio.connect,
    "Producer": Producer,
    "Consumer": Consumer,
    "ShareConsumer": ShareConsumer,
    "admin.describe_configs": admin.describe_configs,
    "admin.alter_configs": admin.alter_configs,
    "admin.create_partitions": admin.create_partitions,
    "group_admin.delete_offsets": group_admin.delete_offsets,
    "replica_admin.move_replicas": replica_admin.move_replicas,
}


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    found = [one for one in inspect.signature(function).parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    return [one for one in found if one.name not in ("self", "cluster", "transaction")]


def _cases() -> Iterator[Any]:
    """Each parameter of each public method and function."""
    for owner, name in _methods():
        function = getattr(OWNERS[owner], name)
        conversation = function._conversation if hasattr(function, "_conversation") else function
        for parameter in _parameters(conversation):
            yield pytest.param(owner, name, conversation, parameter.name, id=f"{owner}.{name}-{parameter.name}")
    for name, function in FUNCTIONS.items():
        conversation = function._conversation if isinstance(function, Operation) else function
        for parameter in _parameters(conversation):
            yield pytest.param("", name, conversation, parameter.name, id=f"{name}-{parameter.name}")


def _call(world: World, owner: str, name: str, arguments: dict[str, Any]) -> Any:
    if owner:
        result = getattr(getattr(world, owner), name)(**arguments)
    else:
        function = FUNCTIONS[name]
        result = function(**arguments) if "connect" in name else function(world.cluster, **arguments)
    if inspect.iscoroutine(result):
        return asyncio.run(result)
    return list(result) if isinstance(result, Iterator) else result


def _kind(function: Callable[..., Any], parameter: str) -> Any:
    made = inspect.unwrap(function.__init__ if isinstance(function, type) else function)  # type: ignore[misc]
    return Arguments(made, is_method=False)._read()[parameter]


@pytest.mark.parametrize(("owner", "name", "function", "parameter"), list(_cases()))
def test_each_parameter_of_each_public_call_refuses_wrong_values(
    world: World, owner: str, name: str, function: Callable[..., Any], parameter: str
) -> None:
    right = {one.name: RIGHT[one.name] for one in _parameters(function) if one.default is inspect.Parameter.empty}
    if (owner, name) == ("producer", "produce"):
        kind, texts = None, {"topic": "str", "partition": "int"}
    else:
        kind, texts = _kind(function, parameter), {}
    text = texts.get(parameter, "anything" if kind is None else kind.text)
    wrong = WRONG.get(text.removesuffix(" or None"), [])
    for value in [*wrong, NO_VALUE]:
        if kind is not None and kind.allows(value):
            continue
        with pytest.raises(UsageError) as refused:
            _call(world, owner, name, {**right, parameter: value})
        message = str(refused.value)
        assert "\n" not in message and len(message) < 350
        if kind is not None:
            assert message.startswith(f"{name.rpartition('.')[2]}: {parameter} must be {text}, not ")


def test_every_public_method_with_parameters_is_in_the_table() -> None:
    assert {name for owner, name in _methods() if owner == "consumer"} == {
        "assign", "close", "commit", "poll", "seek", "subscribe",
    }  # fmt: skip
    assert {name for owner, name in _methods() if owner == "awaiting"} <= {name for owner, name in _methods() if owner == "client"}


PRODUCE = ("producer", "produce")
"""Python itself refuses a call of `produce` without a value: a check would cost each record as much as the rest of the call."""


@pytest.mark.parametrize(("owner", "name"), [method for method in _methods() if method != PRODUCE])
def test_each_public_method_refuses_arguments_that_it_does_not_have(world: World, owner: str, name: str) -> None:
    function = getattr(OWNERS[owner], name)
    parameters = _parameters(getattr(function, "_conversation", function))
    right = {one.name: RIGHT[one.name] for one in parameters if one.default is inspect.Parameter.empty}
    calls = {
        "an unknown keyword": lambda method: method(**right, unknown=1),
        "too many arguments": lambda method: method(*[1] * (len(parameters) + 1)),
        "a missing argument": lambda method: method() if right else method(unknown=1),
    }
    for phrase, call in calls.items():
        with pytest.raises(UsageError) as refused:
            result = call(getattr(getattr(world, owner), name))
            if inspect.iscoroutine(result):
                asyncio.run(result)
        message = str(refused.value)
        made = name.title().replace("_", "")  # a method of the client that makes an object refuses the options of its class
        assert "\n" not in message and message.startswith((f"{name}: ", f"{made}: ")), phrase


PHRASES: dict[str, tuple[Callable[[World], object], str]] = {
    "a list for a mapping": (
        lambda world: world.consumer.assign([A]),  # type: ignore[arg-type]
        "assign: positions must be a mapping from TopicPartition(str, int) to int, not [TopicPartition(topic='t', partition=0)]",
    ),
    "a topic for a partition": (
        lambda world: world.consumer.assign({"t": 0}),  # type: ignore[dict-item]
        "assign: positions must be a mapping from TopicPartition(str, int) to int, not {'t': 0}",
    ),
    "no time": (lambda world: world.consumer.poll(None), "poll: timeout_s must be a number, not None"),  # type: ignore[arg-type]
    "no argument": (lambda world: world.consumer.poll(), "poll: missing a required argument: 'timeout_s'"),  # type: ignore[call-arg]
    "another library's keyword": (
        lambda world: world.consumer.poll(timeout=1.0),  # type: ignore[call-arg]
        "poll: missing a required argument: 'timeout_s'",
    ),
    "one argument of two": (lambda world: world.consumer.seek(A), "seek: missing a required argument: 'offset'"),  # type: ignore[call-arg]
    "an unknown option": (
        lambda world: world.client.producer(ack=1),
        "Producer: got an unexpected keyword argument 'ack'",
    ),
    "an unknown keyword": (
        lambda world: world.client.fetch({A: 0}, wait=1),  # type: ignore[call-arg]
        "fetch: got an unexpected keyword argument 'wait'",
    ),
    "too many arguments": (lambda world: world.client.topics("t"), "topics: too many positional arguments"),  # type: ignore[call-arg]
    "an argument twice": (
        lambda world: world.client.describe_topic("t", topic="t"),  # type: ignore[misc]
        "describe_topic: multiple values for argument 'topic'",
    ),
    "a partition as text": (
        lambda world: world.producer.produce("t", b"v", partition="1"),  # type: ignore[arg-type]
        "produce: partition must be int, not '1'",
    ),
    "another isolation": (
        lambda world: world.client.fetch({A: 0}, isolation="committed"),
        "isolation must be read_uncommitted or read_committed, not 'committed'",
    ),
    "an iterator": (
        lambda world: world.client.committed("g", iter(["t"])),  # type: ignore[arg-type]
        "committed: partitions must be a list of TopicPartition(str, int) or None, not ['t']",
    ),
    "long and of several lines": (
        lambda world: world.client.fetch(["\n" * 500]),  # type: ignore[arg-type]
        "fetch: positions must be a mapping from TopicPartition(str, int) to int, not ['" + "\\n" * 49 + "...",
    ),
}


@pytest.mark.parametrize("case", PHRASES)
def test_the_line_says_what_is_expected(world: World, case: str) -> None:
    call, phrase = PHRASES[case]
    with pytest.raises(UsageError) as refused:
        call(world)
    assert str(refused.value) == phrase


def test_the_awaited_twins_say_the_same(world: World) -> None:
    with pytest.raises(UsageError, match=r"fetch: positions must be a mapping .* not \['t'\]"):
        asyncio.run(world.awaiting.fetch(["t"]))  # type: ignore[arg-type]


class _Index:
    """A whole number of another library."""

    def __index__(self) -> int:
        return 1


@checked
def _function(number: int, wait_s: float = 1.0, *, names: list[str] | None = None, found: Fetched | None = None) -> list[Any]:
    return [number, wait_s, names, found]


def test_right_values_pass_unchanged_and_iterators_become_lists() -> None:
    index = _Index()
    assert _function(index, 2, names=iter("ab")) == [index, 2, ["a", "b"], None]  # type: ignore[arg-type]
    assert _function(True, names=("a",)) == [True, 1.0, ("a",), None]  # type: ignore[arg-type]
    assert _function.__name__ == "_function"
