"""Metrics of quotas: the recent usage and throttle time of each user and client id with a quota.

A quota that has not been used for an hour is not shown any more. A removed quota is shown until then. If no quota of a kind is shown, its
two metrics have one line each, with empty labels and the value 0.
"""

from __future__ import annotations

from urllib.parse import quote

from ottla.base.metric_text import labels_text
from ottla.security.quotas.clients import ClientQuotas
from ottla.security.quotas.limits import FETCH, MUTATION, PRODUCE, REQUEST, QuotaShare
from ottla.server.monitoring.metric_page import Page

THROTTLE_TIMES = {
    PRODUCE: "kafka_server_produce_throttle_time",
    FETCH: "kafka_server_fetch_throttle_time",
    REQUEST: "kafka_server_request_throttle_time",
    MUTATION: "kafka_server_controllermutation_throttle_time",
}
RATES = {
    PRODUCE: "kafka_server_produce_byte_rate",
    FETCH: "kafka_server_fetch_byte_rate",
    REQUEST: "kafka_server_request_request_time",
    MUTATION: "kafka_server_controllermutation_mutation_rate",
}


def collect_quotas(page: Page, quotas: ClientQuotas | None, now_ms: int) -> None:
    shown: dict[str, None] = {}
    for share, meter in quotas.meters() if quotas is not None else ():
        shown[share.kind] = None
        labels = labels_of(share)
        page.put(THROTTLE_TIMES[share.kind], round(meter.throttle_time_ms(now_ms), 3), labels)
        page.put(RATES[share.kind], float(f"{meter.rate.measure(now_ms):.6g}"), labels)
    for kind, throttle_times in THROTTLE_TIMES.items():
        if kind not in shown:
            for name in (throttle_times, RATES[kind]):
                page.put(name, 0, labels_text(user="", client_id=""))


def labels_of(share: QuotaShare) -> str:
    return labels_text(user=printable(share.user), client_id=printable(share.client_id))


def printable(name: str) -> str:
    """Returns the name. A name with unprintable characters is percent-encoded as by Kafka's Sanitizer (Kafka encodes all names of
    users)."""
    return name if name.isprintable() else quote(name, safe="").replace("~", "%7E")
