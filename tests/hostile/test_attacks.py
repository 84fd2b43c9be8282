"""The harness of `attacks.py` measures what it claims, and no attack makes the broker use more memory than allowed."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.hostile.attacks import Target, attack, corpus, measure, workers_of


def test_an_attack_is_measured(own_broker: BrokerProcess) -> None:
    def ask_for_little(target: Target) -> None:
        frame = target.request(18, 3, client_software_name="attack", client_software_version="1")
        target.begin()
        assert all(target.send(frame, frame))

    own_broker.start()
    outcome = measure(own_broker.port, own_broker.pid, ask_for_little)
    assert outcome.waits_ms and outcome.p99_ms <= outcome.longest_ms
    assert 0 < outcome.rss_before_bytes <= outcome.rss_peak_bytes


def test_an_unserved_honest_client_is_a_failure(own_broker: BrokerProcess) -> None:
    def stop_the_broker(target: Target) -> None:
        target.begin()
        own_broker.kill()

    own_broker.start()
    with pytest.raises((AssertionError, OSError)):
        measure(own_broker.port, own_broker.pid, stop_the_broker)


def test_every_attack_has_a_name_of_its_own() -> None:
    taken = next(iter(corpus()))
    with pytest.raises(AssertionError, match="two attacks"):
        attack(taken)(lambda _: None)


def test_worker_processes_of_all_threads_are_found() -> None:
    with ThreadPoolExecutor(1) as pool:
        child = pool.submit(subprocess.Popen, [sys.executable, "-c", "input()"], stdin=subprocess.PIPE).result()
        try:
            assert child.pid in workers_of(os.getpid())
        finally:
            child.communicate()
