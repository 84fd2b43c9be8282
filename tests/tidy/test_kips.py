"""The table of KIPs names each proposal that the code cites, with its modules and tests. `test_docs.py` compares the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGE
from tools import kips


def test_each_citation_has_a_purpose() -> None:
    assert kips.mistakes(kips.citations(PACKAGE)) == []


def test_a_citation_without_a_purpose_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "one.py").write_text('"""KIP-48, and KIP-99999 (KIP-48)."""\n')
    cited = kips.citations(tmp_path)
    assert cited == {48: [Path("part/one.py")], 99999: [Path("part/one.py")]}
    monkeypatch.setattr(kips, "ABOUT", {48: kips.About("Tokens"), 7: kips.About("Nothing")})
    assert kips.mistakes(cited) == [
        "KIP-99999 is cited, and tools/kips.py does not say what it is for", "KIP-7 is in tools/kips.py, and ottla/ does not cite it",
    ]  # fmt: skip
    monkeypatch.setattr(kips, "citations", lambda _folder: cited)
    with pytest.raises(ValueError, match="KIP-99999 is cited"):
        list(kips.rows())


def test_each_row_names_modules_and_tests() -> None:
    for name, purpose, state, modules, tests in kips.rows():
        assert purpose and state and modules, name
        assert tests, f"{name} has no test"


def test_of_a_folder_with_many_files_only_the_folder_is_shown() -> None:
    paths = [Path("a/1.py"), Path("a/2.py"), Path("a/3.py"), Path("a/4.py"), Path("b/1.py")]
    assert kips.shown(paths) == "`a/`, `b/1.py`"
