"""Stores delegation tokens in the metadata store: reads them at the start, writes each change, and watches for changes of other brokers.

A change is decided on the node that it replaces, conditional on its version. If another writer was first, the change is decided again. A
written token is in force on this broker before the answer. Other brokers see the node of the change that the same write adds
(`change_watch.py`). Each broker periodically removes expired tokens; logins with an expired token are refused even before.
`handlers/access/delegation_token_requests.py` checks the permission to change tokens, and `security/delegation_token_logins.py` computes
their secrets.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ottla.base.delegation_token import DelegationToken
from ottla.base.errors import ErrorCode
from ottla.base.loop.procedure import Procedure, Runner
from ottla.base.loop.store_reads import StoreFailure, read_node, write
from ottla.base.loop.store_retries import TRANSIENT, StoreRetries
from ottla.base.ports import Clock, Create, Delete, MetadataStore, Operation, Set, StoreNode, StoreResult, Timers
from ottla.cluster.change_watch import ChangeWatch, WatchedNodes
from ottla.controller.plans import NODE_BYTES_MAX
from ottla.metadata_store import delegation_token_nodes
from ottla.metadata_store.znodes import NodeError

log = logging.getLogger("ottla.cluster")

ATTEMPTS_MAX = 20
"""Maximum number of attempts at one change: other writers may be first each time, or the store may be unreachable."""
TOKENS_MAX = 10_000
"""Maximum number of tokens in a cluster."""
TEXT_BYTES_MAX = 64 << 20
"""Maximum size of the principals' names in all tokens, in bytes."""
CHANGED = (StoreResult.BAD_VERSION, StoreResult.NODE_EXISTS, StoreResult.NO_NODE)
"""Results of a write that another writer has preceded."""

Decide = Callable[[DelegationToken], DelegationToken | ErrorCode | None]
"""Returns the changed token, None to remove it, or the answer's code if the token is not changed."""
Done = Callable[[ErrorCode, DelegationToken | None], object]
"""Called with NONE and the token (None if it was removed) when the change is stored and in force here; otherwise with the error."""

Changed = tuple[ErrorCode, DelegationToken | None]


class DelegationTokens:
    def __init__(
        self, store: MetadataStore, retries: StoreRetries, timers: Timers, clock: Clock, *, is_alone: bool, expiry_interval_ms: int
    ) -> None:
        """`is_alone`: no other broker writes or has to learn of a change."""
        self._store = store
        self._retries = retries
        self._timers = timers
        self._clock = clock
        self._is_alone = is_alone
        self._expiry_interval_ms = expiry_interval_ms
        self._on_loaded: Callable[[], object] | None = None
        self._tokens: dict[str, DelegationToken] = {}
        self._text_bytes = 0
        self._of_owner: Counter[str] = Counter()
        self._text_of_owner: Counter[str] = Counter()
        self.on_change: Callable[[], object] = lambda: None
        """Called when tokens may have been added, changed or removed."""
        watched = WatchedNodes(
            name="delegation tokens", base_paths=delegation_token_nodes.BASE_PATHS, roots=[delegation_token_nodes.TOKENS],
            changes=() if is_alone else [delegation_token_nodes.CHANGES], subject_of=_subject_of, take_all=self._take_all, take=self._take,
        )  # fmt: skip
        self._watch = ChangeWatch(store, retries, timers, watched)

    def find(self, token_id: str) -> DelegationToken | None:
        """Returns the token if it is valid for logins now."""
        token = self._tokens.get(token_id)
        return None if token is None or token.is_expired(self._clock.wall_ms()) else token

    def all(self) -> list[DelegationToken]:
        """Returns every stored token, including expired ones, in order of the ids."""
        return [self._tokens[token_id] for token_id in sorted(self._tokens)]

    # Changing

    def create(self, token: DelegationToken, done: Done) -> None:
        if not self._has_space(token) or len(delegation_token_nodes.token_bytes(token)) > NODE_BYTES_MAX:
            done(ErrorCode.POLICY_VIOLATION, None)
            return
        Runner().start(self._carry_out(partial(self._create, token), done))

    def _has_space(self, token: DelegationToken) -> bool:
        """Whether the token's owner has fewer tokens, and shorter names, than are still free. So one owner can get at most half of the
        limits."""
        count, text_bytes = self._of_owner[token.owner], self._text_of_owner[token.owner] + _text_bytes(token)
        return count < TOKENS_MAX - len(self._tokens) and text_bytes <= TEXT_BYTES_MAX - self._text_bytes

    def update(self, token_id: str, decide: Decide, done: Done) -> None:
        """Changes a token by `decide`. Answers DELEGATION_TOKEN_NOT_FOUND if it is not stored or its node is damaged."""
        Runner().start(self._carry_out(partial(self._update, token_id, decide), done))

    def _carry_out(self, attempt: Callable[[], Procedure[Changed]], done: Done) -> Procedure[None]:
        """Repeats a change after a lost race or a transient failure, up to `ATTEMPTS_MAX` attempts in total, and calls `done`."""
        result = StoreResult.OK
        for left in reversed(range(ATTEMPTS_MAX)):
            try:
                changed = yield from attempt()
            except StoreFailure as failure:
                result = failure.result
            else:
                done(*changed)
                return
            if not left or result is StoreResult.DISK_FAILED or result not in (*CHANGED, *TRANSIENT):
                break
            if result not in CHANGED:
                yield self._retries.again
        log.error("a delegation token could not be changed: %s", result.name)
        done(ErrorCode.KAFKA_STORAGE_ERROR if result is StoreResult.DISK_FAILED else ErrorCode.REQUEST_TIMED_OUT, None)

    def _create(self, token: DelegationToken) -> Procedure[Changed]:
        path, data = delegation_token_nodes.token_path(token.token_id), delegation_token_nodes.token_bytes(token)
        outcome = yield from write(self._store, self._announced(Create(path, data), token.token_id))
        if outcome.result not in (StoreResult.OK, StoreResult.NODE_EXISTS):  # Ids are random: an existing node is an earlier attempt's.
            raise StoreFailure(outcome.result)
        self._put(token.token_id, token)
        return ErrorCode.NONE, token

    def _update(self, token_id: str, decide: Decide) -> Procedure[Changed]:
        path = delegation_token_nodes.token_path(token_id)
        node = yield from read_node(self._store, path)
        token = None if node is None else _understood(token_id, node.data)
        if node is None or token is None:
            self._put(token_id, None)
            return ErrorCode.DELEGATION_TOKEN_NOT_FOUND, None
        decided = decide(token)
        if isinstance(decided, ErrorCode):
            return decided, token
        data = b"" if decided is None else delegation_token_nodes.token_bytes(decided)
        change = Delete(path, node.version) if decided is None else Set(path, data, node.version)
        outcome = yield from write(self._store, self._announced(change, token_id))
        if outcome.result is not StoreResult.OK:
            raise StoreFailure(outcome.result)
        self._put(token_id, decided)
        return ErrorCode.NONE, decided

    def _announced(self, write: Operation, token_id: str) -> list[Operation]:
        return [write] if self._is_alone else [write, delegation_token_nodes.change(token_id)]

    def _put(self, token_id: str, token: DelegationToken | None) -> None:
        known = self._tokens.pop(token_id, None)
        if known is not None:
            self._count(known, -1)
        if token is not None:
            self._tokens[token_id] = token
            self._count(token, 1)
        self.on_change()

    def _count(self, token: DelegationToken, sign: int) -> None:
        text_bytes = sign * _text_bytes(token)
        self._text_bytes += text_bytes
        self._of_owner[token.owner] += sign
        self._text_of_owner[token.owner] += text_bytes
        if not self._of_owner[token.owner]:
            del self._of_owner[token.owner], self._text_of_owner[token.owner]

    # Expiry

    def _expire(self) -> None:
        """Removes expired tokens, and schedules the next check."""
        now_ms = self._clock.wall_ms()

        def decide(token: DelegationToken) -> DelegationToken | ErrorCode | None:
            return None if token.is_expired(now_ms) else ErrorCode.NONE

        for token in [token for token in self._tokens.values() if token.is_expired(now_ms)]:
            self.update(token.token_id, decide, lambda _code, _token: None)
        self._timers.call_later(self._expiry_interval_ms, self._expire)

    # Reading

    def start(self, on_loaded: Callable[[], object]) -> None:
        """Reads all tokens, watches them, and calls `on_loaded` once when they are known."""
        self._on_loaded = on_loaded
        self._timers.call_later(self._expiry_interval_ms, self._expire)
        self.restart()

    def restart(self) -> None:
        """Reads and watches everything again, in a new session of the store."""
        self._watch.start()

    def _take_all(self, nodes: Mapping[str, StoreNode]) -> None:
        self._tokens, self._text_bytes = {}, 0
        self._of_owner.clear()
        self._text_of_owner.clear()
        for path, node in sorted(nodes.items()):
            token_id = delegation_token_nodes.token_at(path)
            token = None if token_id is None else _understood(token_id, node.data)
            if token is not None:
                self._tokens[token.token_id] = token
                self._count(token, 1)
        self.on_change()
        on_loaded, self._on_loaded = self._on_loaded, None
        if on_loaded is not None:
            on_loaded()

    def _take(self, changed: Sequence[tuple[str, str, StoreNode | None]]) -> None:
        for token_id, _path, node in changed:
            self._put(token_id, None if node is None else _understood(token_id, node.data))


def _text_bytes(token: DelegationToken) -> int:
    """Returns an upper bound of the size of the principals' names, in bytes of UTF-8."""
    return 4 * sum(map(len, token.principals))


def _subject_of(_path: str, data: bytes) -> tuple[str, str]:
    """Returns the path and the token id of a change. Raises `NodeError`."""
    token_id = delegation_token_nodes.read_change(data)
    return delegation_token_nodes.token_path(token_id), token_id


def _understood(token_id: str, data: bytes) -> DelegationToken | None:
    """Returns the token of a node, or None if the node is damaged or holds another id. Logins with such a token are refused."""
    try:
        token = delegation_token_nodes.read_token(data)
    except NodeError as error:
        log.error("%s in the metadata store is damaged, so no login by it succeeds: %s", delegation_token_nodes.token_path(token_id), error)
        return None
    return token if token.token_id == token_id else None
