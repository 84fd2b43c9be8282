"""The console of `ottla dev --brokers N` shows what each broker exports, and has the registry of a setting."""

from __future__ import annotations

import json
import subprocess
import sys
from urllib.request import urlopen

import pytest

from ottla.testing.process import environment
from tests.clients.broker_process import eventually


@pytest.mark.usefixtures("need_zookeeper")
def test_rates_and_logs_of_every_broker() -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "dev", "--brokers", "2", "--port", "0", "--console-port", "0"]
    command += ["--set", "ottla.console.registry=http://127.0.0.1:9", "--seed-topic", "orders:1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()) as dev:
        try:
            assert dev.stderr is not None
            url = next(line for line in dev.stderr if line.startswith("console at ")).split()[-1]

            def rates() -> list[str | None]:
                with urlopen(f"{url}/brokers.json", timeout=60) as answer:
                    return [one["bytes_in"] for one in json.load(answer)["brokers"]]

            assert len(eventually(lambda: found if None not in (found := rates()) else None)) == 2
            for broker in (1, 2):
                with urlopen(f"{url}/brokers/{broker}/log.json", timeout=60) as answer:
                    assert any(f'"broker.id": {broker}' in one["line"] for one in json.load(answer)["lines"])
            with urlopen(f"{url}/topics/orders/messages", timeout=60) as answer:
                assert "by a schema of the registry" in answer.read().decode()
        finally:
            dev.terminate()
            dev.wait(60)
    assert dev.returncode == 0
