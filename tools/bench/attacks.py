"""What each attack of tests/hostile does to an honest client beside it: a table, each on a fresh broker with default settings. Then every
API with a mebibyte of one name repeated and of different names, of which the worst are shown.

usage: python -m tools.bench.attacks [words that the attack's name contains]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ottla.requests.apis import TABLE
from ottla.wire.framing import load
from tests.clients.broker_process import BrokerProcess
from tests.hostile.attacks import Attack, Target, corpus, measure
from tests.hostile.large_bodies import DIFFERENT, REPEATED, array_paths, filled
from tools.bench.report import number

MIB = 1 << 20
WORST = 15


def measured(name: str, run: Attack) -> tuple[float, str]:
    """(longest wait in ms, row) of an attack on a fresh broker."""
    with tempfile.TemporaryDirectory(prefix="ottla-attack-") as folder:
        broker = BrokerProcess(Path(folder)).start()
        try:
            found = measure(broker.port, broker.pid, run)
        except (AssertionError, OSError) as error:
            return 0.0, f"| {name} | {type(error).__name__}: {str(error)[:80]} | | | |"
        finally:
            broker.kill()
            assert broker.process is not None and broker.process.stdout is not None
            broker.process.stdout.close()
    rise = (found.rss_peak_bytes - found.rss_before_bytes) / MIB
    figures = (found.longest_ms, found.p99_ms, found.attack_ms, rise)
    return found.longest_ms, f"| {name} | {' | '.join(map(number, figures))} |"


def print_table(word: str = "") -> None:
    print("| attack | longest wait, ms | p99, ms | attack, ms | memory, MiB more |\n| --- | --- | --- | --- | --- |", flush=True)
    for name, run in corpus().items():
        if word in name:
            print(measured(name, run)[1], flush=True)


def large_body_rows() -> Iterator[tuple[float, str]]:
    """(longest wait, row) of each API and kind of body."""
    for api in TABLE.values():
        paths = [] if api.is_extension else array_paths(load(api.key)[0], api.max_version)
        for path, kind in [(path, kind) for path in paths if len(path) == 1 for kind in (REPEATED, DIFFERENT)]:

            def run(target: Target, key: int = api.key, path: list[str] = path, kind: str = kind) -> None:
                version = TABLE[key].max_version
                body = filled(target.world.request(key, version), version, path, kind, MIB)
                frame = target.client.frame(body, version)
                target.begin()
                target.send(frame)

            name = f"{api.name}: a mebibyte of {path[0]}, {kind}"
            yield measured(name, run)


def print_large_bodies() -> None:
    print("\n| body | longest wait, ms | p99, ms | answered in, ms | memory, MiB more |\n| --- | --- | --- | --- | --- |", flush=True)
    rows = sorted(large_body_rows(), reverse=True)
    for _, text in rows[:WORST]:
        print(text, flush=True)
    print(f"\n{len(rows)} bodies; the median of their longest waits is {number(rows[len(rows) // 2][0])} ms", flush=True)


def main(argv: Sequence[str]) -> int:
    print_table(" ".join(argv))
    if not argv:
        print_large_bodies()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
