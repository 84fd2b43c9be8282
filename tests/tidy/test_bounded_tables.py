"""Every cache and table with a limited number of elements is also limited in bytes: it is a `BoundedCache`, or its elements have a limited
size. `BOUNDED` has the reason for each. A new table fails here until it is a `BoundedCache` or is in this list with the reason.
"""

from __future__ import annotations

import ast

from tests.tidy.bounded_tables import bounded_tables
from tests.tidy.sources import PACKAGE, parsed, python_files

CLIENTS = {"arrow", "cli", "client", "console", "frames", "schemas", "spark", "testing"}
"""Parts that a client of a broker cannot reach."""
NUMBERS = "holds numbers"
EXISTS = "holds names of topics, brokers or settings that exist in the cluster, or texts of this program"
HOSTS = "is keyed by addresses"
CONNECTIONS = "holds connections, requests or parts of requests, whose bytes are counted where they are received (server/memory)"
IDS = "is keyed by ids and principals that were let in: 1,000 characters, a client id 255 (base/identifiers.py)"
WEIGHED = "counts the bytes of its names as well"
BOUNDED = {
    "adapters/commit_pace.py: deque": NUMBERS,
    "base/settings/jaas.py: parse_jaas": EXISTS,
    "base/settings/network.py: per_host": EXISTS,
    "cluster/acl_rules.py: self._waiting": CONNECTIONS,
    "cluster/control/queue.py: self._removed": EXISTS,
    "cluster/suspects.py: self._waiting": CONNECTIONS,
    "controller/command_queue.py: self._queue": CONNECTIONS,
    "controller/damage_notes.py: self._logged": EXISTS,
    "controller/loading.py: self._nodes": EXISTS,
    "controller/partition_states.py: self._notes": EXISTS,
    "groups/admin.py: logged": CONNECTIONS,
    "groups/offsets/expiry.py: logged": EXISTS,
    "groups/share/topics.py: keys": EXISTS,
    "handlers/records/fetch.py: wanted": CONNECTIONS,
    "handlers/share_groups/dead_letters.py: self._running": NUMBERS,
    "handlers/topics/metadata.py: _cache": EXISTS,
    "machine/host.py: self._held": CONNECTIONS,
    "replication/fetch_sessions.py: self._sessions": WEIGHED,
    "replication/fetcher.py: self._in_flight": EXISTS,
    "replication/refused_batches.py: self.by_producer": NUMBERS,
    "server/execution/disposal.py: _arrays": EXISTS,
    "server/execution/frame_watch.py: waiting": WEIGHED,
    "handlers/advertised_levels.py: features": EXISTS,
    "handlers/advertised_levels.py: highest_versions": EXISTS,
    "handlers/advertised_levels.py: served": EXISTS,
    "security/quotas/clients.py: self._meters": IDS,
    "security/quotas/connections.py: self._hosts": HOSTS,
    "security/delegation_token_logins.py: self._kept": EXISTS,
    "server/answer_queue.py: self.slots": CONNECTIONS,
    "server/arrivals.py: self._seen": HOSTS,
    "server/coordinator_views.py: known": IDS,
    "server/listener.py: self.connections": CONNECTIONS,
    "server/execution/long_requests.py: self._outstanding": CONNECTIONS,
    "server/memory/receive_buffer.py: self._free": NUMBERS,
    "server/monitoring/http.py: self._scraping": CONNECTIONS,
    "server/monitoring/http.py: self._tasks": CONNECTIONS,
    "server/replica_changes.py: self._resolved": EXISTS,
    "server/execution/route.py: parts": CONNECTIONS,
    "storage/open_files.py: self.segments": EXISTS,
    "storage/producers.py: batches": NUMBERS,
    "storage/segment.py: index": NUMBERS,
    "storage/segment.py: lasts": NUMBERS,
    "storage/small_files.py: lines": EXISTS,
    "storage/time_search.py: self._answers": NUMBERS,
    "transactions/expiry.py: unused": EXISTS,
    "wire/encoded_values.py: self": NUMBERS,
    "wire/encoded_values.py: strings": "holds no string of more than CACHED_STRING_LENGTH_MAX characters",
    "wire/framing.py: header_reader": NUMBERS,
    "wire/framing.py: load": NUMBERS,
    "wire/record_chunks.py: _matcher": NUMBERS,
    "wire/record_times.py: _single_start": NUMBERS,
    "zookeeper_server/server.py: self._connections": "holds 100 connections of this machine, of 5 MiB each at most",
}


def test_every_bounded_table_is_bounded_in_bytes() -> None:
    files = [path for path in python_files("ottla") if path.relative_to(PACKAGE).parts[0] not in CLIENTS]
    found = {f"{path.relative_to(PACKAGE)}: {name}" for path in files for name in bounded_tables(parsed(path))}
    assert sorted(found - BOUNDED.keys()) == [], "make it a BoundedCache, or say here what bounds its entries"
    assert sorted(BOUNDED.keys() - found) == [], "these are there no longer"


def test_tables_that_count_entries_are_found() -> None:
    text = """
@lru_cache(maxsize=10)
def remembered(name): ...
recent = deque(maxlen=10)
class Audit:
    def note(self, name):
        if len(self._written) >= SUBJECTS_MAX:
            self._written.clear()
        self._written[name] = 1
    def ask(self, name):
        if self.keys_max < len(self._keys):
            self._keys.add(name)
        if len(name) > NAME_MAX:
            raise ValueError
"""
    assert set(bounded_tables(ast.parse(text))) == {"deque", "remembered", "self._written", "self._keys"}
