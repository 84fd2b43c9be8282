"""Reaches the controller, wherever it is: `api.Controller` for this broker's own needs.

While this broker is the controller, and without other brokers, every request is a call. Otherwise this broker sends AlterPartition,
ControlledShutdown, the creation of topics (internal ones, and those of a client's metadata request) and alterations of its own settings as
requests to the broker that the metadata names as the controller. Requests of clients to the controller are forwarded whole
(`requests/forwarding.py`); here they get NOT_CONTROLLER, like the clients of a broker that cannot reach the controller.

`ask` sends a request again after lost connections and after NOT_CONTROLLER, with rising pauses, until its time is over: meanwhile another
controller is elected, and this broker gets to know it. So a request may be executed twice, as with Kafka's own route to the controller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ottla.base.cluster_metadata import NO_LEADER, ClusterMetadata
from ottla.base.errors import ErrorCode, error_code
from ottla.base.ports import CONTROL_LANE, DEFAULT_LANE, Peers, TimerHandle, Timers
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
"""So often a request under way is compared with what is known of the controller."""
GRACE_MS = 500
"""The wait for an answer continues for this long after the request's own time, if the controller has the request."""
NOT_TAKEN = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
"""Answers of a broker that has not executed the request: it is not the controller, or does not take this one for a broker yet."""

WholeCode = Callable[[Any], int]
"""The error code of a whole answer."""


class Asking:
    """One request on its way to the controller; `cancel` ends the attempts."""

    def __init__(
        self,
        route: ControllerRoute,
        request: Any,
        whole_code: WholeCode,
        answered: Callable[[Any], object],
        here: Callable[[], object],
        timeout_ms: int,
        lane: str,
        once: Callable[[ErrorCode], object] | None,
    ) -> None:
        """`once` is called with the reason in place of another attempt."""
        self._route = route
        self._request = request
        self._whole_code = whole_code
        self._answered = answered
        self._here = here
        self._lane = lane
        self._once = once
        self._pause_ms = RETRY_FIRST_MS
        self._attempt = 0
        self._asked = NO_LEADER
        self._is_under_way = False
        self._deadline = route.timers.call_later(timeout_ms, self._on_deadline)
        self._review: TimerHandle | None = None
        self.is_over = False

    def cancel(self) -> None:
        self.is_over = True
        self._deadline.cancel()
        if self._review is not None:
            self._review.cancel()

    def attempt(self) -> None:
        if self.is_over:
            return
        route = self._route
        if route.is_here:
            self._answer_here()
            return
        self._attempt += 1
        attempt, self._asked = self._attempt, route.metadata.controller_id
        if self._review is None:
            self._review = route.timers.call_later(REVIEW_MS, self._look)

        def answered(response: Any, code: int) -> None:
            if attempt == self._attempt and not self.is_over:
                self._on_answer(response, code)

        self._is_under_way = True
        route.peers.send(self._asked, self._request, answered, lane=self._lane)

    def _on_deadline(self) -> None:
        """Ends the wait. The controller may be answering at this moment that the time is over, with the results so far."""
        if self._is_under_way:
            self._deadline = self._route.timers.call_later(GRACE_MS, self._answer_here)
        else:
            self._answer_here()

    def _on_answer(self, response: Any, code: int) -> None:
        self._is_under_way = False
        refusal = error_code(code or self._whole_code(response))
        if not code and refusal not in NOT_TAKEN:
            self.cancel()
            self._answered(response)
        elif self._once is not None:
            self.cancel()
            self._once(refusal)
        else:
            self._attempt += 1
            attempt, pause_ms = self._attempt, self._pause_ms
            self._pause_ms = min(2 * pause_ms, RETRY_MAX_MS)
            self._route.timers.call_later(pause_ms, lambda: self.attempt() if attempt == self._attempt else None)

    def _look(self) -> None:
        """Ends the wait for a broker that is no longer the controller, since its answer may never arrive. A request in a pause finds the
        new controller by itself; a new pause at each look would delay its attempt for ever."""
        self._review = None
        if self._is_under_way and (self._route.is_here or self._route.metadata.controller_id != self._asked):
            self._on_answer(None, ErrorCode.NOT_CONTROLLER)
        if not self.is_over and self._review is None:
            self._review = self._route.timers.call_later(REVIEW_MS, self._look)

    def _answer_here(self) -> None:
        self.cancel()
        self._here()


class ControllerRoute:
    """`api.Controller`: this broker's controller while it is elected, else another broker's."""

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
        """`timeout_ms`: how long requests of this broker itself are tried. `is_alone`: it is one of no cluster."""
        self.local = local
        self.metadata = metadata
        self.peers = peers
        self.timers = timers
        self._broker_id = broker_id
        self._timeout_ms = timeout_ms
        self._is_alone = is_alone

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self.local.is_active

    @property
    def is_here(self) -> bool:
        """Whether requests are answered here: this broker is the controller, or one of no cluster."""
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
        """Calls `answered` with the controller's answer; or `here`, if this broker has become the controller or the time is over; or
        `once`, if given, after the first attempt that came to nothing."""
        time_ms = self._timeout_ms() if timeout_ms is None else timeout_ms
        asking = Asking(self, request, whole_code, answered, here, time_ms, lane, once)
        asking.attempt()
        return asking

    # The requests of this broker

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
        """For changes that are not `is_replacing`."""

        def here() -> None:
            self.local.alter_configs(requests, validate_only, done)

        if self.is_here:
            here()
            return
        from ottla.cluster.controller_requests import alter_configs_request, config_results, refusal_of_all_configs

        request = alter_configs_request(requests, validate_only)
        self.ask(request, refusal_of_all_configs, lambda response: done(config_results(response)), here)

    # Requests of clients alone: they are forwarded whole

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
