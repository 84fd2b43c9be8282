"""Stores ACLs in the metadata store, one node for each resource pattern: reads them at the start, writes changes, and watches for changes
of other brokers.

A change is decided from the version of the node that was read, and its write is conditional on this version. If another broker has written
meanwhile, the change is decided again; so no rule is lost. A written rule is in force on this broker before the answer. The same write adds
a node that names the changed pattern. Other brokers see this node and read the pattern again (`change_watch.py`). A damaged node is read as
a rule that denies everything until an operator repairs it, because resources without rules may be open to all.
`handlers/access/acl_requests.py` checks the permission to change rules, and validates them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from ottla.base.acls import ANY_PRINCIPAL, WILDCARD, AclFilter, AclOperation, Binding, Pattern, Permission, Rule
from ottla.base.errors import ErrorCode
from ottla.base.immutable import immutable
from ottla.base.loop.procedure import CHECKPOINT, Procedure, Runner
from ottla.base.loop.store_reads import write
from ottla.base.loop.store_retries import TRANSIENT, StoreRetries
from ottla.base.ports import (
    MULTI_BYTES_MAX,
    Create,
    Delete,
    MetadataStore,
    Operation,
    Set,
    StoreNode,
    StoreResult,
    Timers,
    operation_bytes,
)
from ottla.cluster.change_watch import ChangeWatch, WatchedNodes
from ottla.controller.loading import read_paths
from ottla.metadata_store import acl_nodes
from ottla.metadata_store.znodes import NodeError

log = logging.getLogger("ottla.cluster")

ATTEMPTS_MAX = 20
"""Maximum number of failed attempts at one write: other writers may be first each time, or the store may be unreachable."""
CHANGES_MAX = 10_000
"""Maximum number of waiting requests; further ones get REQUEST_TIMED_OUT for all their patterns."""
PATTERNS_PER_WRITE = 50
RULES_BYTES_PER_WRITE = 1 << 17
"""One write adds no more patterns after its old and new nodes exceed this many bytes. Reading and encoding 1 MiB takes about 30 ms."""
RULES_BYTES_MAX = MULTI_BYTES_MAX // 2
"""Maximum size of a pattern's node, in bytes: some thousands of rules. A larger one gets POLICY_VIOLATION."""

DENY_ALL = Rule(ANY_PRINCIPAL, WILDCARD, AclOperation.ALL, Permission.DENY)

CHANGED = (StoreResult.BAD_VERSION, StoreResult.NODE_EXISTS, StoreResult.NO_NODE, StoreResult.NOT_EMPTY)
"""Results of a write that another writer has preceded."""


class RuleTable(Protocol):
    """The rules in force (`security/acl_authorizer.py`)."""

    def replace(self, rules: Mapping[Pattern, Iterable[Rule]]) -> None: ...

    def put(self, pattern: Pattern, rules: Iterable[Rule]) -> None: ...

    def bindings(self, wanted: AclFilter) -> Generator[None, None, list[Binding]]: ...


@immutable
class RuleChange:
    """Rules to add to and to remove from a pattern."""

    added: frozenset[Rule] = frozenset()
    removed: frozenset[Rule] = frozenset()


Done = Callable[[Mapping[Pattern, ErrorCode]], object]
"""Called with the patterns that could not be changed and their errors. All other patterns are stored and in force."""


class AclRules:
    """Keeps a `RuleTable` equal to the rules in the store, and changes them in the store."""

    def __init__(self, store: MetadataStore, retries: StoreRetries, timers: Timers, table: RuleTable, *, is_alone: bool) -> None:
        """`is_alone`: no other broker writes or has to learn of a change."""
        self._store = store
        self._retries = retries
        self._timers = timers
        self._table = table
        self._is_alone = is_alone
        self._on_loaded: Callable[[], object] | None = None
        self._waiting: deque[tuple[dict[Pattern, RuleChange], Done]] = deque()
        self._work = Runner()
        self._retry: Callable[..., None] | None = None
        """Continues after a failure. A new session of the store drops retries, so `restart` calls it too."""
        watched = WatchedNodes(
            name="access rules", base_paths=acl_nodes.BASE_PATHS, roots=list(acl_nodes.FOLDERS.values()),
            changes=() if is_alone else list(acl_nodes.CHANGES.values()), subject_of=_subject_of, take_all=self._take_all, take=self._take,
        )  # fmt: skip
        self._watch = ChangeWatch(store, retries, timers, watched)

    def start(self, on_loaded: Callable[[], object]) -> None:
        """Reads all rules, watches them, and calls `on_loaded` once when they are in force."""
        self._on_loaded = on_loaded
        self._watch.start()

    def restart(self) -> None:
        """Reads and watches everything again in a new session of the store, because the watches and retries of the old session have ended.
        """
        self._watch.start()
        if self._retry is not None:
            self._retry()

    def change(self, changes: Mapping[Pattern, RuleChange], done: Done) -> None:
        if len(self._waiting) >= CHANGES_MAX:
            done(dict.fromkeys(changes, ErrorCode.REQUEST_TIMED_OUT))
            return
        self._waiting.append((dict(changes), done))
        if not self._work.is_running:
            self._work.start(self._serve())

    def bindings(self, wanted: AclFilter) -> Generator[None, None, list[Binding]]:
        """Finds the rules in force that match the filter, in steps: yields None after each step, and at the end returns the rules, ordered
        by pattern."""
        return self._table.bindings(wanted)

    def _take_all(self, nodes: Mapping[str, StoreNode]) -> None:
        rules: dict[Pattern, list[Rule]] = {}
        for path, node in sorted(nodes.items()):
            try:
                pattern = acl_nodes.pattern_at(path)
            except NodeError as error:
                log.warning("%s in the metadata store is passed over: %s", path, error)
                continue
            if pattern is not None:
                rules[pattern] = _understood(path, node.data)
        self._table.replace(rules)
        on_loaded, self._on_loaded = self._on_loaded, None
        if on_loaded is not None:
            on_loaded()

    def _take(self, changed: Sequence[tuple[Pattern, str, StoreNode | None]]) -> None:
        for pattern, path, node in changed:
            self._table.put(pattern, [] if node is None else _understood(path, node.data))

    # Changing

    def _serve(self) -> Procedure[None]:
        """Makes the changes of the waiting requests, one request in each iteration of the event loop."""
        while self._waiting:
            changes, done = self._waiting[0]
            failed = yield from self._make(changes)
            self._waiting.popleft()
            done(failed)
            yield self._timers.call_soon if self._waiting else CHECKPOINT

    def _make(self, left: dict[Pattern, RuleChange]) -> Procedure[Mapping[Pattern, ErrorCode]]:
        """Reads, decides and writes up to `PATTERNS_PER_WRITE` patterns at a time. Returns the patterns that could not be changed.

        If another writer was first or the store is unreachable, reads and decides again. This also shows whether a write with an unknown
        outcome was executed. Gives up after `ATTEMPTS_MAX` failed attempts in succession, and at once after any other failure."""
        failed: dict[Pattern, ErrorCode] = {}
        at_once, attempts = PATTERNS_PER_WRITE, 0
        while left:
            paths = {acl_nodes.rules_path(pattern): pattern for pattern in islice(left, at_once)}
            result, nodes = yield partial(read_paths, self._store, list(paths))
            if result is StoreResult.OK:
                at_once, decided, operations = self._decide_some(paths, nodes, left, failed, at_once)
                if operations:
                    result = (yield from write(self._store, operations)).result
            if result is StoreResult.OK:
                for pattern, rules in decided.items():
                    self._table.put(pattern, rules)
                    del left[pattern]
                attempts = 0
                if left:
                    yield self._timers.call_soon
                continue
            attempts += 1
            if attempts < ATTEMPTS_MAX and result in CHANGED:
                continue
            if attempts < ATTEMPTS_MAX and result in TRANSIENT and result is not StoreResult.DISK_FAILED:
                yield self._begin_pause
                self._retry = None
                continue
            log.error("access rules could not be changed: %s", result.name)
            code = ErrorCode.KAFKA_STORAGE_ERROR if result is StoreResult.DISK_FAILED else ErrorCode.REQUEST_TIMED_OUT
            failed.update(dict.fromkeys(left, code))
            break
        return failed

    def _begin_pause(self, resume: Callable[..., None]) -> None:
        self._retry = resume
        self._retries.again(resume)

    def _decide_some(
        self,
        paths: Mapping[str, Pattern],
        nodes: Mapping[str, StoreNode],
        left: dict[Pattern, RuleChange],
        failed: dict[Pattern, ErrorCode],
        at_once: int,
    ) -> tuple[int, dict[Pattern, frozenset[Rule]], list[Operation]]:
        """Decides as many of the patterns as fit into one write. Returns the number of patterns to read for the next write, the new rules
        of the decided patterns, and the write. Moves patterns that cannot be changed from `left` to `failed`."""
        operations: list[Operation] = []
        decided: dict[Pattern, frozenset[Rule]] = {}
        size = work = 0
        at_once = min(2 * at_once, PATTERNS_PER_WRITE)
        for number, (path, pattern) in enumerate(paths.items()):
            if work > RULES_BYTES_PER_WRITE:
                at_once = number  # The other patterns are read again for the next write.
                break
            node = nodes.get(path)
            try:
                rules, data, of_pattern = self._decide(path, pattern, left[pattern], node)
            except NodeError as error:
                log.error("%s in the metadata store cannot be changed: %s", path, error)
                failed[pattern] = ErrorCode.UNKNOWN_SERVER_ERROR
                del left[pattern]
                continue
            work += len(data) + (0 if node is None else len(node.data))
            if len(data) > RULES_BYTES_MAX:
                failed[pattern] = ErrorCode.POLICY_VIOLATION
                del left[pattern]
                continue
            size += sum(map(operation_bytes, of_pattern))
            if decided and size > MULTI_BYTES_MAX:
                break
            operations += of_pattern
            decided[pattern] = rules
        return at_once, decided, operations

    def _decide(
        self, path: str, pattern: Pattern, change: RuleChange, node: StoreNode | None
    ) -> tuple[frozenset[Rule], bytes, list[Operation]]:
        """Returns the pattern's new rules, the content of their node, and the write; no write if nothing changes. Raises `NodeError`."""
        old = frozenset(acl_nodes.read_rules(node.data)) if node is not None else frozenset()
        rules = (old - change.removed) | change.added
        if rules == old and (node is None) == (not rules):
            return rules, b"" if node is None else node.data, []
        data = acl_nodes.rules_bytes(rules)  # Encoded once, because thousands of rules take some milliseconds.
        write: Operation
        if node is None:
            write = Create(path, data)
        elif rules:
            write = Set(path, data, node.version)
        else:
            write = Delete(path, node.version)
        return rules, data, [write] if self._is_alone else [write, acl_nodes.change(pattern)]


def _subject_of(path: str, data: bytes) -> tuple[str, Pattern]:
    """Returns the path and the pattern of a change. Raises `NodeError`."""
    pattern = acl_nodes.read_change(path, data)
    return acl_nodes.rules_path(pattern), pattern


def _understood(path: str, data: bytes) -> list[Rule]:
    """Returns the rules of a node, or a rule that denies everything if the node is damaged."""
    try:
        return acl_nodes.read_rules(data)
    except NodeError as error:
        log.error("%s in the metadata store is damaged, so everything is denied there: %s", path, error)
        return [DENY_ALL]
