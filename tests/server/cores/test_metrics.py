"""One page of the metrics of several brokers."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from ottla.server.cores.metrics import merge

PAGE = """\
# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{api="Produce"} 5
requests_total{api="Fetch {x}"} 7
# HELP up Whether.
# TYPE up gauge
up 1
"""


def test_each_sample_has_its_broker_and_each_family_one_header() -> None:
    page = merge([(1, PAGE), (2, PAGE.replace(" 5\n", " 6\n")), (3, "")])
    assert page.count("# HELP requests_total") == page.count("# TYPE up gauge") == 1
    families = {family.name: family.samples for family in text_string_to_metric_families(page)}
    found = {(sample.labels["broker"], sample.labels["api"]): sample.value for sample in families["requests"]}
    assert found == {("1", "Produce"): 5, ("1", "Fetch {x}"): 7, ("2", "Produce"): 6, ("2", "Fetch {x}"): 7}
    assert [(sample.labels, sample.value) for sample in families["up"]] == [({"broker": "1"}, 1), ({"broker": "2"}, 1)]


def test_no_broker_is_an_empty_page() -> None:
    assert merge([(1, ""), (2, "")]) == ""
