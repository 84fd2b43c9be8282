"""The tests of every module can be found."""

from __future__ import annotations

import pytest

from tests.tidy import mirror

WITHOUT_TESTS = {"ottla.__main__"}


def test_every_module_has_tests() -> None:
    packages = {module.rpartition(".")[0] for module in mirror.graph()}
    untested = {module for module in mirror.graph() if module not in packages and not mirror.tests_of(module)}
    assert untested == WITHOUT_TESTS


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("ottla.storage.log", "tests/storage/test_log.py"),
        ("ottla.handlers.transactions.end_txn", "tests/handlers/transactions/test_transactions.py"),
        ("ottla.storage.known_damage", "tests/storage/test_recovery.py"),
        ("ottla.cli.broker.dev", "tests/cli/broker/test_running.py"),
    ],
)
def test_the_tests_are_the_right_ones(module: str, test: str) -> None:
    assert test in mirror.tests_of(module)


def test_the_tests_of_a_file_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    mirror.main(["ottla/storage/log.py"])
    assert capsys.readouterr().out == "tests/storage/test_log.py\n"
