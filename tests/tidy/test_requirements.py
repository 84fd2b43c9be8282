"""The requirements that `make` installs have exact versions with the hashes of their files, and include all their dependencies."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.sources import ROOT
from tools.requirement_hashes import head_and_pins

FILES = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.+]*( --hash=sha256:[0-9a-f]{64})+")


def pins(text: str) -> list[str]:
    joined = re.sub(r" \\\n +", " ", text)
    return [line for line in joined.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_version_is_exact_and_has_hashes(path: Path) -> None:
    text = path.read_text()
    found = pins(text)
    assert found and all(PIN.fullmatch(pin) for pin in found), [pin[:80] for pin in found if not PIN.fullmatch(pin)]
    assert "://" not in text and "--index" not in text, "where they are downloaded is the machine's matter"


def test_a_version_without_a_hash_is_noticed() -> None:
    good = "one==1.0 \\\n    --hash=sha256:" + "0" * 64
    assert [bool(PIN.fullmatch(pin)) for pin in pins(f"# head\n{good}\ntwo==2\nthree>=1 \\\n    --hash=sha256:{'1' * 64}\n")] == [
        True, False, False,
    ]  # fmt: skip


def test_make_installs_nothing_without_hashes() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = re.findall(r"pip install (.*)", makefile)
    by_file = [command for command in commands if "--requirement" in command]
    assert all("--require-hashes" in command for command in by_file)
    named = {name for command in by_file for name in re.findall(r"--requirement requirements/(\S+)\.txt", command)}
    by_environment = set(re.findall(r": build/(\w+)-env/\.ready", makefile))
    assert named | by_environment == {path.stem for path in FILES}
    assert [command for command in commands if command not in by_file] == [
        "--quiet --disable-pip-version-check --no-deps --no-build-isolation --editable ."
    ]


def names_in(file: str) -> set[str]:
    return {canonicalize_name(pin.partition("==")[0]) for pin in head_and_pins((ROOT / "requirements" / file).read_text())[1]}


def imported_by(module: str, seen: set[str]) -> set[str]:
    """Returns the packages that a program in tools/ imports, directly or through other modules of tools/."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    if module in seen or not path.is_file():
        return set()
    seen.add(module)
    names = re.findall(r"^ *(?:import|from) ([\w.]+)", path.read_text(), re.MULTILINE)
    return {name.partition(".")[0] for name in names}.union(*(imported_by(name, seen) for name in names if name.startswith("tools.")))


def test_make_installs_what_each_program_imports() -> None:
    makefile = (ROOT / "Makefile").read_text()
    of_spark_alone = names_in("spark.txt") - names_in("dev.txt")
    assert "matplotlib" in of_spark_alone
    lacking = {}
    for target, commands in re.findall(r"^([\w-]+): \$\(STAMP\)\n((?:\t.*\n)+)", makefile, re.MULTILINE):
        for module in re.findall(r"-m (tools\.[\w.]+)", commands):
            lacking[target, module] = {canonicalize_name(name) for name in imported_by(module, set())} & of_spark_alone
    assert len(lacking) > 3 and not any(lacking.values()), {key: names for key, names in lacking.items() if names}


def test_what_the_packages_need_is_there_too() -> None:
    """All dependencies are in the files, because pip installs them with `--no-deps`."""
    _, found = head_and_pins((ROOT / "requirements/dev.txt").read_text())
    named = {canonicalize_name(pin.partition("==")[0]) for pin in found}
    needed = set()
    for name in named:
        for text in metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed.add(canonicalize_name(requirement.name))
    assert needed <= named, needed - named


def test_renewing_keeps_the_comment_and_the_versions() -> None:
    text = "# Why.\none==1.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\ntwo==2\n"
    assert head_and_pins(text) == (["# Why."], ["one==1.0", "two==2"])
