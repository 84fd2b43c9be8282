"""Runs a conversation by hand: answers, errors and the clock come from the test."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ottla.client.addresses import Address
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.conversation import Ask, AskAll, AskRolling, Conversation, Effect, Open, perform_all
from ottla.client.core.versions import Versions
from ottla.client.errors import ClientError
from ottla.wire.messages.api_versions import FinalizedFeatureKey
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.client.core.talk import versions_answer

T = TypeVar("T")


class FakeLink:
    """A `Link` that speaks every version."""

    def __init__(self, address: Address, transaction_version: int = 2) -> None:
        self.address = address
        self.is_open = True
        self.in_flight = 0
        versions = Versions(str(address))
        feature = FinalizedFeatureKey(name="transaction.version", max_version_level=transaction_version)
        versions.learn(versions_answer(finalized_features=[feature]))
        self.close = lambda: None
        self.version_of, self.offers, self.feature_level = versions.version_of, versions.offers, versions.feature_level


class ByHand:
    """A cluster whose requests the test answers: `answer(ask)` returns a response, or raises or returns a `ClientError`."""

    def __init__(self, answer: Callable[[Ask], Any], *, leaders: dict[str, list[int]] | None = None, timeout_s: float = 30.0) -> None:
        self.now_s = 100.0
        self.answer = answer
        self.leaders = leaders or {}
        self.asked: list[Ask] = []
        self.rounds: list[int] = []
        self.windows: list[int] = []
        """The most requests that were under way at once, by round."""
        self.pauses: list[float] = []
        self.opened: list[Address] = []
        self.transaction_version = 2
        self.core = ClusterCore([Address("b1", 9092)], now=lambda: self.now_s, timeout_s=timeout_s)

    def run(self, conversation: Conversation[T]) -> T:
        return perform_all(conversation, self._perform)

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Open):
            self.opened.append(effect.address)
            return FakeLink(effect.address, self.transaction_version)
        if isinstance(effect, Ask):
            return self._ask(effect)
        if isinstance(effect, AskAll):
            self.rounds.append(len(effect.asks))
            return [self._answer_or_error(ask) for ask in effect.asks]
        if isinstance(effect, AskRolling):
            return self._ask_rolling(effect)
        self.pauses.append(effect.seconds)
        self.now_s += effect.seconds
        return None

    def _ask_rolling(self, effect: AskRolling) -> None:
        """The broker works on a request as it comes; its answer is read when one has to be, or at the end."""
        under_way: deque[Any] = deque()
        count = most = 0
        for ask in effect.asks:
            if ask is None:
                effect.note(under_way.popleft())
                continue
            under_way.append(self._answer_or_error(ask))
            count, most = count + 1, max(most, len(under_way))
        while under_way:
            effect.note(under_way.popleft())
        self.rounds.append(count)
        self.windows.append(most)

    def _answer_or_error(self, ask: Ask) -> Any:
        try:
            return self._ask(ask)
        except ClientError as error:
            return error

    def _ask(self, ask: Ask) -> Any:
        if isinstance(ask.body, MetadataRequest):
            return self.metadata()
        self.asked.append(ask)
        return self.answer(ask)

    def metadata(self) -> MetadataResponse:
        """Topics and leaders as `leaders` has them; broker n is at bn:9092."""
        ids = {1, *(leader for some in self.leaders.values() for leader in some if leader >= 0)}
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=number, host=f"b{number}", port=9092) for number in sorted(ids)],
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    name=name,
                    partitions=[MetadataResponsePartition(partition_index=at, leader_id=leader) for at, leader in enumerate(some)],
                )
                for name, some in self.leaders.items()
            ],
        )


def rolling(core: ClusterCore, noted: list[Any]) -> Conversation[None]:
    """Heartbeats named 0 to 5, at most three of them under way, and one that is too long to be encoded. `noted` gets their answers."""
    link = yield from core.any_link()

    def asks() -> Iterator[Ask | None]:
        for number in range(6):
            yield Ask(link, HeartbeatRequest(group_id=str(number)))
            if number >= 2:
                yield None
                assert len(noted) == number - 1
        yield Ask(link, HeartbeatRequest(group_id="x" * 70_000))

    yield AskRolling(asks(), noted.append)
