"""Stores ACLs in the metadata store, one node for each resource pattern: reads them at the start, writes changes, and watches for changes
of other brokers.

A write is conditional on the version of the node that it was decided on. If another writer was first, the change is decided again; so no
rule is lost when two brokers change the same pattern. A written rule is in force on this broker before the answer. Other brokers see the
node of the change that the same write adds, and read the pattern again (`change_watch.py`). A damaged node is read as a rule that denies
everything until an operator repairs it, because resources without rules may be open to all. Elsewhere: the permission to change rules, and
their validation (`handlers/access/acl_requests.py`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from ottla.base.acls import ANY_PRINCIPAL, WILDCARD, AclFilter, AclOperation, Binding, Pattern, Permission, Rule
from ottla.base.errors import ErrorCode
from ottla.base.immutable import immutable
from ottla.base.loop.store_retries import TRANSIENT, StoreRetries
from ottla.base.ports import (
    MULTI_BYTES_MAX,
    Create,
    Delete,
    MetadataStore,
    Operation,
    Outcome,
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
"""Maximum of failed attempts at one write: other writers may be first each time, or the store may be unreachable."""
CHANGES_MAX = 10_000
"""Maximum of waiting requests; further ones get REQUEST_TIMED_OUT for all their patterns."""
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
        self._waiting: deque[_Writing] = deque()
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
        if self._waiting and self._waiting[0].is_parked:
            self._waiting[0].run()

    def change(self, changes: Mapping[Pattern, RuleChange], done: Done) -> None:
        if len(self._waiting) >= CHANGES_MAX:
            done(dict.fromkeys(changes, ErrorCode.REQUEST_TIMED_OUT))
            return
        writing = _Writing(
            self._store, self._retries, self._timers, self._table, changes, self._is_alone, lambda failed: self._end(failed, done)
        )  # fmt: skip
        self._waiting.append(writing)
        if len(self._waiting) == 1:
            self._waiting[0].run()

    def bindings(self, wanted: AclFilter) -> Generator[None, None, list[Binding]]:
        """Returns the rules in force that match the filter, ordered by pattern; yields between steps."""
        return self._table.bindings(wanted)

    def _end(self, failed: Mapping[Pattern, ErrorCode], done: Done) -> None:
        self._waiting.popleft()
        if self._waiting:
            self._timers.call_soon(self._waiting[0].run)  # In a later iteration: thousands of requests without a write would nest.
        done(failed)

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


class _Writing:
    """Makes the changes of one request: reads, decides and writes up to `PATTERNS_PER_WRITE` patterns at a time."""

    def __init__(
        self,
        store: MetadataStore,
        retries: StoreRetries,
        timers: Timers,
        table: RuleTable,
        changes: Mapping[Pattern, RuleChange],
        is_alone: bool,
        done: Done,
    ) -> None:
        self._store = store
        self._retries = retries
        self._timers = timers
        self._table = table
        self._left = dict(changes)
        self._patterns_at_once = PATTERNS_PER_WRITE
        self._is_alone = is_alone
        self._done = done
        self._failed: dict[Pattern, ErrorCode] = {}
        self._attempts = 0
        self.is_parked = False
        """Whether it waits for a retry. A new session drops retries, so `restart` runs it again."""

    def run(self) -> None:
        self.is_parked = False
        if not self._left:
            self._done(self._failed)
            return
        paths = {acl_nodes.rules_path(pattern): pattern for pattern in islice(self._left, self._patterns_at_once)}
        read_paths(self._store, list(paths), lambda result, nodes: self._on_read(paths, result, nodes))

    def _on_read(self, paths: Mapping[str, Pattern], result: StoreResult, nodes: Mapping[str, StoreNode]) -> None:
        if result is not StoreResult.OK:
            self._try_again(result)
            return
        operations: list[Operation] = []
        decided: dict[Pattern, frozenset[Rule]] = {}
        size = work = 0
        self._patterns_at_once = min(2 * self._patterns_at_once, PATTERNS_PER_WRITE)
        for number, (path, pattern) in enumerate(paths.items()):
            if work > RULES_BYTES_PER_WRITE:
                self._patterns_at_once = number  # The other patterns are read again for the next write.
                break
            node = nodes.get(path)
            try:
                rules, data, of_pattern = self._decide(path, pattern, node)
            except NodeError as error:
                log.error("%s in the metadata store cannot be changed: %s", path, error)
                self._fail(pattern, ErrorCode.UNKNOWN_SERVER_ERROR)
                continue
            work += len(data) + (0 if node is None else len(node.data))
            if len(data) > RULES_BYTES_MAX:
                self._fail(pattern, ErrorCode.POLICY_VIOLATION)
                continue
            size += sum(map(operation_bytes, of_pattern))
            if decided and size > MULTI_BYTES_MAX:
                break
            operations += of_pattern
            decided[pattern] = rules
        if operations:
            self._store.multi(operations, lambda outcome: self._on_written(decided, outcome))
        else:
            self._on_written(decided, Outcome(StoreResult.OK))

    def _decide(self, path: str, pattern: Pattern, node: StoreNode | None) -> tuple[frozenset[Rule], bytes, list[Operation]]:
        """Returns the pattern's new rules, the content of their node, and the write; no write if nothing changes. Raises `NodeError`."""
        change = self._left[pattern]
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

    def _on_written(self, decided: Mapping[Pattern, frozenset[Rule]], outcome: Outcome) -> None:
        if outcome.result is not StoreResult.OK:
            self._try_again(outcome.result)
            return
        for pattern, rules in decided.items():
            self._table.put(pattern, rules)
            del self._left[pattern]
        self._attempts = 0
        if self._left:
            self._timers.call_soon(self.run)  # In a later iteration: with a store that answers at once, writes would nest.
        else:
            self._done(self._failed)

    def _try_again(self, result: StoreResult) -> None:
        """Decides again from a new reading, which also shows whether a write with an unknown outcome was executed. Gives up after
        `ATTEMPTS_MAX`."""
        self._attempts += 1
        if result in CHANGED and self._attempts < ATTEMPTS_MAX:
            self.run()
        elif result in TRANSIENT and self._attempts < ATTEMPTS_MAX and result is not StoreResult.DISK_FAILED:
            self.is_parked = True
            self._retries.again(self.run)
        else:
            code = ErrorCode.KAFKA_STORAGE_ERROR if result is StoreResult.DISK_FAILED else ErrorCode.REQUEST_TIMED_OUT
            log.error("access rules could not be changed: %s", result.name)
            for pattern in list(self._left):
                self._fail(pattern, code)
            self._done(self._failed)

    def _fail(self, pattern: Pattern, code: ErrorCode) -> None:
        self._failed[pattern] = code
        self._left.pop(pattern, None)


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
