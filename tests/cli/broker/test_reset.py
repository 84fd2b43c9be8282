"""The removal of what a broker left."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Ottla


def test_reset_empties_a_brokers_directory_and_no_other(offline: Ottla, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "t-0").mkdir(parents=True)
    (data / "t-0" / "0.log").write_bytes(b"x")
    refused = offline("reset", "-d", data, "--yes")
    assert refused.code == 1
    assert "nothing was removed" in refused.err
    (data / "meta.properties").write_text("version=0\n")
    unasked = offline("reset", "-d", data)
    assert unasked.code == 2
    assert (data / "t-0" / "0.log").exists()
    assert offline("reset", "-d", data, "--force").code == 0
    assert list(data.iterdir()) == []
    assert json.loads(offline("reset", "-d", data, "--yes", "-o", "json").out) == {"removed": []}
