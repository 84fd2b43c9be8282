"""A broker is found by its data directory and stopped."""

from __future__ import annotations

import json
from pathlib import Path

from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


def test_a_broker_is_found_by_its_directory_and_stopped(offline: Ottla, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data_dir=data) as broker:
        found = json.loads(offline("status", "-d", data, "-o", "json").out)
        assert found["running"] is True
        assert found["address"] == broker.direct_server
        assert found["answer_ms"] > 0
        refused = offline("reset", "-d", data, "--yes")
        assert (refused.code, refused.out) == (1, "")
        assert "stop it first" in refused.err
        stopped = offline("stop", "-d", data)
        assert stopped.code == 0
        assert stopped.out.startswith(f"broker {found['pid']} has stopped")
        assert (data / ".kafka_cleanshutdown").exists()
    assert offline("status", "-d", data).code == 1
    again = offline("stop", "-d", data)
    assert (again.code, again.err) == (1, f"error: no broker runs in {data}; name its directory with --data-dir\n")
