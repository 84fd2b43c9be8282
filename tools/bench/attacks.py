"""What each attack of tests/hostile does to an honest client beside it: a table, each on a fresh broker with default settings.

usage: python -m tools.bench.attacks [words that the attack's name contains]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.clients.broker_process import BrokerProcess
from tests.hostile.attacks import Attack, corpus, measure
from tools.bench.report import number

MIB = 1 << 20


def row(name: str, run: Attack) -> str:
    with tempfile.TemporaryDirectory(prefix="ottla-attack-") as folder:
        broker = BrokerProcess(Path(folder)).start()
        try:
            found = measure(broker.port, broker.pid, run)
        except (AssertionError, OSError) as error:
            return f"| {name} | {type(error).__name__}: {str(error)[:80]} | | | |"
        finally:
            broker.kill()
            assert broker.process is not None and broker.process.stdout is not None
            broker.process.stdout.close()
    rise = (found.rss_peak_bytes - found.rss_before_bytes) / MIB
    return f"| {name} | {number(found.longest_ms)} | {number(found.p99_ms)} | {number(found.attack_ms)} | {number(rise)} |"


def print_table(word: str = "") -> None:
    print("| attack | longest wait, ms | p99, ms | attack, ms | memory, MiB more |\n| --- | --- | --- | --- | --- |", flush=True)
    for name, run in corpus().items():
        if word in name:
            print(row(name, run), flush=True)


def main(argv: Sequence[str]) -> int:
    print_table(" ".join(argv))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
