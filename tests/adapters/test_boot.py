"""The name of a boot."""

from __future__ import annotations

from pathlib import Path

from ottla.adapters.boot import boot_id


def test_a_boot_has_one_name_and_a_system_without_one_says_so(tmp_path: Path) -> None:
    (tmp_path / "boot_id").write_text("b7d1\n")
    assert boot_id(str(tmp_path / "boot_id")) == "b7d1" and boot_id(str(tmp_path / "missing")) == ""
    assert boot_id() == boot_id()
