"""Sends this broker's own requests to the controller. Implements `api.Controller` on every broker of a cluster.

If this broker is the controller, or the only broker, each request is a call of `LocalController`. Otherwise requests are sent to the broker
that the metadata names as the controller: AlterPartition, ControlledShutdown, CreateTopics, and changes of this broker's settings.
CreateTopics creates internal topics, and topics that a client's Metadata request names. A client's request to the controller is not sent
here: the broker forwards the whole request (`server/execution/forwarding.py`). If such a request is executed on a broker that is not the
controller, the client gets NOT_CONTROLLER.

`ask` repeats a request with rising pauses until its timeout: after a lost connection, after NOT_CONTROLLER, and after
CLUSTER_AUTHORIZATION_FAILED. Meanwhile a new controller may be elected. A request may be executed twice, as with Kafka's own brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ottla.base.cluster_metadata import ClusterMetadata
from ottla.base.errors import ErrorCode, error_code
from ottla.base.loop.procedure import Answer, Procedure, Runner, pause
from ottla.base.ports import CONTROL_LANE, DEFAULT_LANE, Peers, Timers
from ottla.controller.api import (
    AlterPartitionDone,
    ConfigRequest,
    ConfigResult,
    ElectionsDone,
    ElectionType,
    IsrChangeRequest,
    NewPartitions,
    NewTopic,
    PartitionResult,
    QuotaRequest,
    QuotaResult,
    Reassignment,
    ScramRequest,
    ScramResult,
    TopicsDone,
)
from ottla.controller.local_controller import LocalController

log = logging.getLogger("ottla.cluster")

RETRY_FIRST_MS = 10
RETRY_MAX_MS = 500
REVIEW_MS = 250
"""The interval, in milliseconds, at which a request in flight is checked: its receiver must still be the controller."""
GRACE_MS = 500
"""Extension of the timeout, in milliseconds, of a request that is in flight when its timeout ends."""
NOT_TAKEN = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
"""Errors of a broker that has not executed the request: it is not the controller, or it has not recognized the sender as a broker yet."""

WholeCode = Callable[[Any], int]
"""Returns the error code that refuses the whole request; NONE if the answer has results."""


class Asking:
    """One request to the controller, from its first attempt to its end; `cancel` ends the attempts."""

    def __init__(
        self,
        route: ControllerLink,
        request: Any,
        whole_code: WholeCode,
        answered: Callable[[Any], object],
        here: Callable[[], object],
        timeout_ms: int,
        lane: str,
        once: Callable[[ErrorCode], object] | None,
    ) -> None:
        """If `once` is given, it is called with the reason of a failed attempt, and there is no second attempt."""
        self._route = route
        self._request = request
        self._whole_code = whole_code
        self._answered = answered
        self._here = here
        self._lane = lane
        self._once = once
        self._is_in_flight = False
        self._limit = Runner()
        self._attempts = Runner()
        self._limit.start(self._end_in_time(timeout_ms))
        self._attempts.start(self._ask())

    @property
    def is_over(self) -> bool:
        return not self._attempts.is_running

    def cancel(self) -> None:
        self._limit.cancel()
        self._attempts.cancel()

    def _end_in_time(self, timeout_ms: int) -> Procedure[None]:
        """Ends the attempts at the timeout, and calls `here`. A request in flight gets `GRACE_MS` more: the controller has the same
        timeout, and may be about to answer with partial results.
        """
        yield from pause(self._route.timers, timeout_ms)
        if self._is_in_flight:
            yield from pause(self._route.timers, GRACE_MS)
        self.cancel()
        self._here()

    def _ask(self) -> Procedure[None]:
        """Repeats the request with rising pauses until a broker has executed it, or until this broker is the controller."""
        route = self._route
        pause_ms = RETRY_FIRST_MS
        while not route.is_here:
            response, refusal = yield from self._attempt()
            if refusal is None:
                self.cancel()
                self._answered(response)
                return
            if self._once is not None:
                self.cancel()
                self._once(refusal)
                return
            yield from pause(route.timers, pause_ms)
            pause_ms = min(2 * pause_ms, RETRY_MAX_MS)
        self.cancel()
        self._here()

    def _attempt(self) -> Procedure[tuple[Any, ErrorCode | None]]:
        """Sends the request once. Returns the answer and None, or the reason why the attempt failed. The wait also ends when another broker
        becomes the controller, because the former controller may never answer.
        """
        route = self._route
        asked = route.metadata.controller_id
        answer: Answer[tuple[Any, int]] = Answer()
        self._is_in_flight = True
        route.peers.send(asked, self._request, answer, lane=self._lane)
        while not (yield from answer.wait(route.timers, REVIEW_MS)):
            if route.is_here or route.metadata.controller_id != asked:
                break
        self._is_in_flight = False
        if not answer.has_arrived:
            return None, ErrorCode.NOT_CONTROLLER
        response, code = answer.value
        refusal = error_code(code or self._whole_code(response))
        return response, refusal if code or refusal in NOT_TAKEN else None


class ControllerLink:
    """`api.Controller`: calls the local controller while this broker is elected, otherwise sends requests to the elected broker."""

    def __init__(
        self,
        local: LocalController,
        *,
        broker_id: int,
        metadata: ClusterMetadata,
        peers: Peers,
        timers: Timers,
        timeout_ms: Callable[[], int],
        is_alone: bool,
    ) -> None:
        """`timeout_ms` returns the timeout of this broker's own requests. `is_alone`: this broker is not a member of a cluster."""
        self.local = local
        self.metadata = metadata
        self.peers = peers
        self.timers = timers
        self._broker_id = broker_id
        self._timeout_ms = timeout_ms
        self._is_alone = is_alone

    @property
    def is_active(self) -> bool:
        return self.local.is_active

    @property
    def is_here(self) -> bool:
        """Whether requests are answered here: this broker is the controller, or not a member of a cluster."""
        return self.local.is_active or (self._is_alone and self.metadata.brokers.keys() <= {self._broker_id})

    def ask(
        self,
        request: Any,
        whole_code: WholeCode,
        answered: Callable[[Any], object],
        here: Callable[[], object],
        *,
        timeout_ms: int | None = None,
        lane: str = DEFAULT_LANE,
        once: Callable[[ErrorCode], object] | None = None,
    ) -> Asking:
        """Sends a request and calls one of the functions. `answered` gets the controller's answer. `here` is called when this broker has
        become the controller, and at the timeout: the local controller then answers NOT_CONTROLLER. `once`, if given, is called after one
        failed attempt.
        """
        time_ms = self._timeout_ms() if timeout_ms is None else timeout_ms
        return Asking(self, request, whole_code, answered, here, time_ms, lane, once)

    # Requests that brokers send

    def alter_partition(self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChangeRequest], done: AlterPartitionDone) -> None:
        """Sends one attempt. The sender tries again itself, with its newest proposals."""
        if self.is_here:
            self.local.alter_partition(broker_id, broker_epoch, changes, done)
            return
        from ottla.cluster.controller_requests import alter_partition_request, partition_results

        def refused(code: ErrorCode) -> None:
            done(code, [])

        self.ask(
            alter_partition_request(broker_id, broker_epoch, changes),
            lambda response: response.error_code,
            lambda response: done(error_code(response.error_code), partition_results(response, self.metadata)),
            lambda: refused(ErrorCode.NOT_CONTROLLER),
            lane=CONTROL_LANE,
            once=refused,
        )

    def controlled_shutdown(self, broker_id: int, broker_epoch: int, done: Callable[[ErrorCode, list[tuple[str, int]]], None]) -> None:
        def here() -> None:
            self.local.controlled_shutdown(broker_id, broker_epoch, done)

        if self.is_here:
            here()
            return
        from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest

        def answered(response: Any) -> None:
            remaining = [(left.topic_name, left.partition_index) for left in response.remaining_partitions]
            done(error_code(response.error_code), remaining)

        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        self.ask(request, lambda response: response.error_code, answered, here, lane=CONTROL_LANE)

    def create_topics(self, topics: Sequence[NewTopic], validate_only: bool, done: TopicsDone, *, timeout_ms: int | None = None) -> None:
        def here() -> None:
            self.local.create_topics(topics, validate_only, done, timeout_ms=timeout_ms)

        if self.is_here:
            here()
            return
        from ottla.cluster.controller_requests import create_topics_request, refusal_of_all_topics, topic_results

        request = create_topics_request(topics, validate_only, self._timeout_ms() if timeout_ms is None else timeout_ms)
        self.ask(request, refusal_of_all_topics, lambda response: done(topic_results(response, topics)), here)

    def alter_configs(self, requests: Sequence[ConfigRequest], validate_only: bool, done: Callable[[list[ConfigResult]], None]) -> None:
        """Alters settings incrementally. Requests must not be `is_replacing`."""

        def here() -> None:
            self.local.alter_configs(requests, validate_only, done)

        if self.is_here:
            here()
            return
        from ottla.cluster.controller_requests import alter_configs_request, config_results, refusal_of_all_configs

        request = alter_configs_request(requests, validate_only)
        self.ask(request, refusal_of_all_configs, lambda response: done(config_results(response)), here)

    # Requests that only clients send

    def delete_topics(self, names: Sequence[str], done: TopicsDone, *, timeout_ms: int | None = None) -> None:
        self.local.delete_topics(names, done, timeout_ms=timeout_ms)

    def create_partitions(
        self, topics: Sequence[NewPartitions], validate_only: bool, done: TopicsDone, *, timeout_ms: int | None = None
    ) -> None:
        self.local.create_partitions(topics, validate_only, done, timeout_ms=timeout_ms)

    def alter_quotas(self, requests: Sequence[QuotaRequest], validate_only: bool, done: Callable[[list[QuotaResult]], None]) -> None:
        self.local.alter_quotas(requests, validate_only, done)

    def alter_scram(self, requests: Sequence[ScramRequest], done: Callable[[list[ScramResult]], None]) -> None:
        self.local.alter_scram(requests, done)

    def elect_leaders(
        self, kind: ElectionType, partitions: Sequence[tuple[str, int]] | None, done: ElectionsDone, *, timeout_ms: int | None = None
    ) -> None:
        self.local.elect_leaders(kind, partitions, done, timeout_ms=timeout_ms)

    def alter_reassignments(self, requests: Sequence[Reassignment], done: Callable[[list[PartitionResult]], None]) -> None:
        self.local.alter_reassignments(requests, done)
