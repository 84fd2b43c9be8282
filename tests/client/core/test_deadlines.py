"""A call with `timeout_s` takes no longer, although each of its steps is slow. Progress gives a call with bulk data its time again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.backoff import Backoff, Deadline
from ottla.client.core.conversation import Ask, AskAll, AskRolling, Conversation, Effect, Open
from ottla.client.core.operations import committed, fetch
from ottla.client.core.raw_produce import produce_batches
from ottla.client.core.staging import StagedChunk, stage
from ottla.client.core.transaction import TransactionCore
from ottla.client.errors import ClientError, OutcomeUnknownError, RequestTimeoutError
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.records import Record, encode_batch
from tests.client.core.drive import ByHand
from tests.client.core.test_raw_produce import Log

A, B, C = (TopicPartition("t", number) for number in range(3))
LIMIT_S = 1.0
LIMITS = pytest.mark.parametrize("limit_s", [LIMIT_S, LIMIT_S / 4, LIMIT_S * 4])


def _batch(sequence: int = 0) -> bytearray:
    return encode_batch([Record(0, 0, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=sequence)


class Slow(ByHand):
    """Three leaders. Each step takes `step_s`: to connect, and to answer. A step with less time fails after this time."""

    def __init__(self, step_s: float, answer: Callable[[Ask], Any] | None = None) -> None:
        super().__init__(answer or _silent, leaders={"t": [1, 2, 3]}, timeout_s=LIMIT_S)
        self.step_s = step_s

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Open):
            self._take(self.step_s, effect.timeout_s)
        elif isinstance(effect, AskAll):  # the requests are under way at once
            asked = [self._answer_or_error(ask) for ask in effect.asks]
            self.now_s += max(min(self.step_s, self._limit(ask)) for ask in effect.asks)
            return asked
        return super()._perform(effect)

    def _answer_or_error(self, ask: Ask) -> Any:
        try:
            answer = self.answer(ask)
            return answer if self.step_s <= self._limit(ask) else RequestTimeoutError("no answer")
        except ClientError as error:
            return error

    def _ask_rolling(self, effect: AskRolling) -> None:
        """Waits for one answer after the other."""
        for ask in effect.asks:
            if ask is not None:
                answer = self._answer_or_error(ask)
                self.now_s += min(self.step_s, self._limit(ask))
                effect.note(answer)

    def _ask(self, ask: Ask) -> Any:
        self._take(self.step_s, ask.timeout_s)
        return super()._ask(ask)

    def _take(self, seconds: float, limit_s: float | None) -> None:
        limit_s = LIMIT_S if limit_s is None else limit_s
        self.now_s += min(seconds, limit_s)
        if seconds > limit_s:
            raise RequestTimeoutError("no answer")

    @staticmethod
    def _limit(ask: Ask) -> float:
        return LIMIT_S if ask.timeout_s is None else ask.timeout_s


def _silent(_: Ask) -> Any:
    raise RequestTimeoutError("no answer")


def _coordinator(ask: Ask) -> Any:
    if isinstance(ask.body, FindCoordinatorRequest):
        return FindCoordinatorResponse(coordinators=[Coordinator(key="x", node_id=1, host="b1", port=9092)])
    if isinstance(ask.body, InitProducerIdRequest):
        return InitProducerIdResponse(producer_id=7, producer_epoch=0)
    raise RequestTimeoutError("no answer")


CALLS: dict[str, Callable[[ByHand, float], Conversation[Any]]] = {
    "fetch": lambda world, limit_s: fetch(world.core, {A: 0, B: 0, C: 0}, max_wait_ms=700, timeout_s=limit_s),
    "produce_batches": lambda world, limit_s: produce_batches(
        world.core, {A: [_batch()], B: [_batch()], C: [_batch()]}, timeout_s=limit_s
    ),
    "stage": lambda world, limit_s: stage(
        world.core, bytes(16), 5, {A: {0: _batch()}, B: {0: _batch()}, C: {0: _batch()}}, timeout_s=limit_s
    ),
    "committed": lambda world, limit_s: committed(world.core, "g", timeout_s=limit_s),
}


@LIMITS
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("step_s", [0.9, 0.3, 0.12])
def test_a_call_takes_no_longer_than_its_time_although_each_step_is_slow(call: str, step_s: float, limit_s: float) -> None:
    world = Slow(step_s)
    begin = world.now_s
    with pytest.raises(RequestTimeoutError):
        world.run(CALLS[call](world, limit_s))
    assert world.now_s - begin <= limit_s + 0.001


def _transaction(world: ByHand, step_s: float, transaction_version: int) -> TransactionCore:
    """An open transaction with one partition."""
    world.transaction_version = transaction_version
    assert isinstance(world, Slow)
    world.step_s = 0.0
    transaction = TransactionCore(world.core, "x")
    world.run(transaction.initialize())
    transaction.begin()
    transaction._added.add(A)
    world.step_s = step_s
    world.core.close()  # every step connects again
    return transaction


STEPS: dict[str, Callable[[TransactionCore], Conversation[Any]]] = {
    "produce": lambda transaction: transaction.produce({B: [_batch()], C: [_batch()]}),
    "attach": lambda transaction: transaction.attach(bytes(16), {B: [StagedChunk(5, 0, 1, 70, 1)]}),
    "commit_offsets": lambda transaction: transaction.commit_offsets("g", {A: 1}),
    "commit": lambda transaction: transaction.commit(),
    "abort": lambda transaction: transaction.abort(),
    "initialize": lambda transaction: transaction.initialize(),
}


@pytest.mark.parametrize("transaction_version", [1, 2])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("step_s", [0.9, 0.3])
def test_a_step_of_a_transaction_takes_no_longer_than_the_clients_time(step: str, step_s: float, transaction_version: int) -> None:
    world = Slow(step_s, _coordinator)
    transaction = _transaction(world, step_s, transaction_version)
    begin = world.now_s
    try:
        world.run(STEPS[step](transaction))
    except (RequestTimeoutError, OutcomeUnknownError):
        pass
    else:
        assert step == "initialize"
    assert world.now_s - begin <= LIMIT_S + 0.001


def test_progress_gives_a_call_its_time_again() -> None:
    """Twenty answers that take 0.2 s each, within a limit of 1 s."""
    log = Log()
    world = Slow(0.2, log)
    world.run(produce_batches(world.core, {A: [_batch(number) for number in range(20)]}))
    assert log.appended[A] == list(range(20))
    assert world.now_s - 100 > 4 * LIMIT_S


def test_a_request_gives_the_broker_less_time_than_the_caller_waits() -> None:
    asked: list[Any] = []
    world = ByHand(lambda ask: asked.append(ask) or Log()(ask), leaders={"t": [1]}, timeout_s=30.0)
    world.run(produce_batches(world.core, {A: [_batch()]}, timeout_s=2.0))
    (ask,) = asked
    assert isinstance(ask.body, ProduceRequest)
    assert ask.body.timeout_ms == 1800 and ask.timeout_s == 2.0


def test_a_fetch_that_may_wait_longer_than_its_time_returns_nothing_in_time() -> None:
    waits: list[int] = []

    def empty(ask: Ask) -> Any:
        body: Any = ask.body
        waits.append(body.max_wait_ms)
        world.now_s += body.max_wait_ms / 1000
        return FetchResponse(responses=[])

    world = ByHand(empty, leaders={"t": [1]}, timeout_s=30.0)
    assert world.run(fetch(world.core, {A: 0}, max_wait_ms=10_000, timeout_s=2.0)) == []
    assert waits == [1800]


def test_a_deadline_is_renewed_and_ends_the_pauses() -> None:
    now = 0.0
    deadline = Deadline(1.0, lambda: now)
    pauses = Backoff(deadline)
    assert (deadline.left_s(), deadline.left_ms()) == (1.0, 900)
    now = 0.99
    assert pauses.is_exhausted() and not Backoff(None).is_exhausted()
    now = 5.0
    assert (deadline.left_s(), deadline.left_ms()) == (-4.0, 1)
    deadline.renew()
    assert deadline.left_s() == 1.0 and not pauses.is_exhausted()
