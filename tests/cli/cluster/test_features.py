"""Feature levels: the output of Kafka's tool, and the levels of a release."""

from __future__ import annotations

import pytest

from ottla.cli.cluster.features import LEVELS, metadata_name
from tests.cli.conftest import Ottla


def test_a_level_that_is_there_already(ottla: Ottla) -> None:
    result = ottla("features", "upgrade", "--feature", "group.version=1", "--dry-run", "-o", "json").json()
    assert result["features"] == [{"feature": "group.version", "level": 1, "result": "done", "error": None, "message": None}]
    assert ottla("kafka-features", "upgrade", "--release-version", "4.0", "--dry-run").out == (
        "group.version can be upgraded to 1.\ntransaction.version can be upgraded to 2.\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("upgrade", "--feature", "group.version=9"), "Could not upgrade group.version to 9. "),
        (("upgrade", "--metadata", "3.9", "--dry-run"), "Can not upgrade metadata.version to 21. "),
        (("downgrade", "--feature", "nope.version=1"), "Could not downgrade nope.version to 1. "),
        (("disable", "--feature", "nope.version"), "Could not disable nope.version. "),
    ],
)
def test_refusals_as_kafka_words_them(ottla: Ottla, words: tuple[str, ...], message: str) -> None:
    result = ottla("kafka-features", *words)
    assert (result.code, result.err) == (1, "1 out of 1 operation(s) failed.\n")
    assert result.out.startswith(message)


def test_what_releases_bring_and_features_need(offline: Ottla) -> None:
    assert offline("kafka-features", "version-mapping", "--release-version", "3.9").out.startswith("metadata.version=21 (3.9)\n")
    assert offline("kafka-features", "version-mapping").out.startswith("metadata.version=30 (4.3-IV0)\n")
    rows = offline("features", "version-mapping", "--release-version", "4.0-IV3", "-o", "json").json()["levels"]
    assert {row["feature"]: row["level"] for row in rows} == LEVELS["4.0"]
    needs = offline("kafka-features", "feature-dependencies", "--feature", "eligible.leader.replicas.version=1,share.version=1").out
    assert needs == (
        "eligible.leader.replicas.version=1 requires:\n    metadata.version=23 (4.0-IV1)\nshare.version=1 has no dependencies.\n"
    )
    assert [
        row["needs"]
        for row in offline("features", "feature-dependencies", "--feature", "share.version=1", "-o", "json").json()["dependencies"]
    ] == [None]
    for feature, code in (("nope=1", 2), ("share.version=7", 1), ("metadata.version=99", 1), ("share.version", 2)):
        refused = offline("features", "feature-dependencies", "--feature", feature)
        assert (refused.code, refused.err.count("\n")) == (code, 1)


def test_names_of_levels_end_each_release() -> None:
    assert all(str(metadata_name(levels["metadata.version"])).startswith(release) for release, levels in LEVELS.items())
    assert metadata_name(6) is metadata_name(99) is None


def test_features(ottla: Ottla) -> None:
    rows = {row["feature"]: row for row in ottla("features", "describe", "-o", "json").json()["features"]}
    assert rows["transaction.version"]["finalized"] <= rows["transaction.version"]["supported_max"]
    assert ottla("features", "describe").out.startswith("FEATURE")


def test_levels_in_force_may_be_asked_for_and_others_are_refused(ottla: Ottla) -> None:
    rows = ottla("features", "describe", "-o", "json").json()["features"]
    name, level = next((row["feature"], row["finalized"]) for row in rows if row["finalized"] > 0)
    same = ottla("features", "upgrade", "--feature", f"{name}={level}", "--dry-run", "-o", "json").json()
    assert same["features"][0]["result"] == "done"
    assert same["dry_run"] is True
    refused = ottla("features", "upgrade", "--feature", "no.such.version=3", "-o", "json")
    assert refused.code == 1
    assert refused.json()["features"][0]["error"]
    for lowered in (("disable", "--feature", name), ("downgrade", "--feature", f"{name}=0", "--unsafe")):
        answer = ottla("features", *lowered, "-o", "json")
        assert answer.code == 1 and answer.json()["features"][0]["error"] in ("FEATURE_UPDATE_FAILED", "INVALID_UPDATE_VERSION")
    assert ottla("features", "describe", "-o", "json").json()["features"] == rows


def test_the_levels_of_a_release(offline: Ottla) -> None:
    rows = offline("features", "version-mapping", "--release-version", "4.0", "-o", "json").json()["levels"]
    assert {"release": "4.0", "feature": "metadata.version", "level": 25} in rows
    assert len(rows) == 7
    assert len(offline("features", "version-mapping", "-o", "json").json()["levels"]) > 70
