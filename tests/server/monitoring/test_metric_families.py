"""The dashboard and the alert rules use only metrics that the broker exports, and only labels that these metrics have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.server.monitoring.metric_families import DIALECTS, FAMILIES, alias
from tests.server.metric_names import exported_names, labels_of

DASHBOARDS = Path(__file__).resolve().parents[3] / "ottla" / "console" / "dashboards"
WORDS_OF_PROMQL = frozenset({"sum", "max", "min", "avg", "rate", "increase", "by", "without", "on", "label_values", "time"})
ALERTS = (
    "UnderReplicatedPartitions", "AbnormalControllerState", "OfflinePartitions", "UnderMinIsrPartitionCount", "OfflineLogDirectoryCount",
    "TooLargeConsumerGroupLag", "LogDirectoryNearlyFull", "DamageUnrepaired",
)  # fmt: skip


def expressions_of(value: Any) -> Iterator[str]:
    """Yields every expression of a dashboard, including the expressions of its variables."""
    if isinstance(value, dict):
        for key, inside in value.items():
            if key in ("expr", "definition") and isinstance(inside, str):
                yield inside
            else:
                yield from expressions_of(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from expressions_of(inside)


def metrics_asked_for(expression: str) -> set[str]:
    bare = re.sub(r'"[^"]*"|\[[^\]]*\]', "", expression)
    bare = re.sub(r"\b(by|without|on)\s*\([^)]*\)", "", bare)
    bare = re.sub(r"label_values\((\w+),[^)]*\)", r"\1", bare)
    bare = re.sub(r"\{[^}]*\}", "", bare)
    return set(re.findall(r"[a-zA-Z_]\w*", bare)) - WORDS_OF_PROMQL


def labels_asked_for(expression: str) -> set[str]:
    """Returns the labels that an expression selects by, or keeps in an aggregation."""
    kept = re.findall(r"\b(?:by|without|on)\s*\(([^)]*)\)", expression)
    selected = re.findall(r"(\w+)\s*(?:=~|!=|!~|=)\s*\"", expression)
    queried = re.findall(r"label_values\(\w+,\s*(\w+)\)", expression)
    return {label.strip() for group in kept for label in group.split(",")} | {*selected, *queried}


def all_expressions() -> list[str]:
    return [*expressions_of(json.loads((DASHBOARDS / "ottla.json").read_text())), *alert_rules().values()]


def alert_rules() -> dict[str, str]:
    text = (DASHBOARDS / "alerts.yaml").read_text()
    return dict(re.findall(r"- alert: (\w+)\n\s+expr: (.+)\n", text))


def test_the_dashboard_asks_for_what_is_exported() -> None:
    expressions = list(expressions_of(json.loads((DASHBOARDS / "ottla.json").read_text())))
    assert len(expressions) > 30
    for expression in expressions:
        names = metrics_asked_for(expression)
        assert names, expression
        assert names <= exported_names(), expression


def test_alerts_ask_for_what_is_exported() -> None:
    rules = alert_rules()
    assert set(ALERTS) <= set(rules)
    for expression in rules.values():
        names = metrics_asked_for(expression)
        assert names, expression
        assert names <= exported_names(), expression


@pytest.mark.parametrize("expression", all_expressions())
def test_expressions_ask_for_labels_that_are_there(expression: str) -> None:
    """Allowed are the labels of the metric, and `instance`, which Prometheus adds. An unknown label would select nothing, without an
    error."""
    known = {**labels_of(), "ottla_tls_certificate_not_after_seconds": {"listener"}}  # tests/clients/test_tls.py reads this metric
    there = set().union(*(known[name] for name in metrics_asked_for(expression)))
    assert labels_asked_for(expression) <= there | {"instance"}


def test_texts_of_alerts_use_labels_that_their_expressions_keep() -> None:
    """An aggregation drops every label that it does not name. A text with a dropped label would have a gap."""
    for rule in re.split(r"^ +- alert: ", (DASHBOARDS / "alerts.yaml").read_text(), flags=re.MULTILINE)[1:]:
        expression = alert_rules()[rule.partition("\n")[0]]
        is_aggregated = re.search(r"\b(sum|max|min|avg)\(", expression) is not None
        kept = labels_asked_for(expression) if is_aggregated else {"instance", *labels_of()[min(metrics_asked_for(expression))]}
        assert set(re.findall(r"\$labels\.(\w+)", rule)) <= kept, rule


def test_the_reading_of_expressions_finds_what_is_missing() -> None:
    asked = metrics_asked_for('sum by (topic) (rate(kafka_no_such_total{topic!="",a="kafka_brokers"}[5m])) / kafka_brokers')
    assert asked == {"kafka_no_such_total", "kafka_brokers"}
    assert not asked <= exported_names()
    labels = labels_asked_for('sum(rate(a_total{topic!="",b=~"x"}[5m])) by (client_id, c) / on(d) e + label_values(f, g)')
    assert labels == {"topic", "b", "client_id", "c", "d", "g"}


@pytest.mark.parametrize("board", ["ottla.json", "pipelines.json"])
def test_panels_do_not_lie_upon_each_other(board: str) -> None:
    cells = set()
    for panel in json.loads((DASHBOARDS / board).read_text())["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in cells, panel["title"]
                assert x < 24
                cells.add((x, y))


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_dialects_have_names_of_their_own(dialect: str) -> None:
    names = [name for family in FAMILIES.values() if (name := alias(family, dialect))]
    assert len(names) == len(set(names)) == sum(bool(family.per_second) for family in FAMILIES.values())
    assert not set(names) & set(FAMILIES)
    assert set(names) <= exported_names((dialect,))


def test_kinds_follow_names() -> None:
    for family in FAMILIES.values():
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
