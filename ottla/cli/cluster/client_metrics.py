"""`ottla client-metrics`: subscriptions to metrics of clients (KIP-714), and the metrics that clients push.

A subscription is a resource of the cluster's settings. `show` reads the pushed metrics from `/metrics` of every broker, because a client
pushes to one broker of its choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ottla.analysis.metrics_text import MetricsRefused, Sample, metrics_address, samples_in, scrape
from ottla.base.metric_text import CLIENT_INFO, CLIENT_LABELS, PUSHED_PREFIX
from ottla.base.settings.client_metrics import CLIENT_METRICS_SETTINGS
from ottla.cli.command import YES, Args, Refused, UsageError, command, confirm, granted, merged, option
from ottla.cli.options import connect
from ottla.cli.render.ottla import Output, Row, column
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin

KIND = admin.CLIENT_METRICS_RESOURCE
NAME = option("name", metavar="NAME", help="the name of the subscription")


class NameRow(Row):
    subscription: str


class SubscriptionRow(Row):
    subscription: str
    interval_ms: int
    metrics: list[str]
    match: list[str]


class ReportingClientRow(Row):
    """A client that pushes metrics."""

    client_id: str
    instance_id: str
    software: str
    version: str
    address: str
    broker: str = column(wide=True)
    series: int = column("#SERIES")


class SeriesRow(Row):
    """A pushed value."""

    client_id: str
    instance_id: str = column(wide=True)
    metric: str
    labels: dict[str, str]
    value: float


def subscription_names(cluster: Cluster) -> list[str]:
    return [name for _, name in admin.list_config_resources(cluster, [KIND])]


def alter_subscription(cluster: Cluster, name: str, given: Mapping[str, str]) -> None:
    """Sets the settings with a value, and resets the settings with an empty value. Makes the subscription if there is none."""
    changes = {key: value for key, value in given.items() if value}
    admin.alter_configs(cluster, KIND, name, changes=changes, deletions=[key for key in given if key not in changes])


def delete_subscription(cluster: Cluster, name: str) -> None:
    admin.alter_configs(cluster, KIND, name, deletions=list(CLIENT_METRICS_SETTINGS))


@command("client-metrics list", "Names of the subscriptions.", may_watch=True, needs="DESCRIBE_CONFIGS CLUSTER")
def _list(args: Args, cluster: Cluster, output: Output) -> None:
    output.rows("subscriptions", NameRow, [NameRow(name) for name in subscription_names(cluster)])


@command(
    "client-metrics describe",
    "Interval, metrics and clients of subscriptions.",
    option("names", nargs="*", metavar="NAME", help="only these"),
    may_watch=True,
    needs="DESCRIBE_CONFIGS CLUSTER",
)
def _describe(args: Args, cluster: Cluster, output: Output) -> None:
    known = subscription_names(cluster)
    for name in args.names:
        _check_exists(known, name)
    names = args.names or known
    found = admin.describe_configs(cluster, KIND, names) if names else {}
    output.rows("subscriptions", SubscriptionRow, [_row(name, granted(found[name])) for name in names])


def _row(name: str, entries: list[Any]) -> SubscriptionRow:
    values = {entry.name: entry.value or "" for entry in entries}
    lists = {key: [part for part in values[key].split(",") if part] for key in ("metrics", "match")}
    return SubscriptionRow(name, int(values["interval.ms"]), lists["metrics"], lists["match"])


def _check_exists(known: list[str], name: str) -> None:
    if name not in known:
        raise Refused(f"there is no subscription {name}; see `ottla client-metrics list`", "RESOURCE_NOT_FOUND")


@command(
    "client-metrics alter",
    "Create a subscription, or change it.",
    NAME,
    option("--interval-ms", metavar="MS", help="milliseconds between pushes, at least 100; empty: 5 minutes"),
    option("--metric", action="append", metavar="PREFIX", help="metrics whose name begins with this; *: all; empty: none; repeatable"),
    option("--match", action="append", metavar="K=PATTERN", help="the clients, as client_id=PATTERN; empty: all; repeatable"),
    needs="ALTER_CONFIGS CLUSTER",
)
def _alter(args: Args, cluster: Cluster, output: Output) -> None:
    lists = {"match": args.match, "metrics": args.metric}
    given = {key: ",".join(merged(parts)) for key, parts in lists.items() if parts is not None}
    if args.interval_ms is not None:
        given["interval.ms"] = args.interval_ms
    if not given:
        raise UsageError("give --interval-ms, --metric or --match")
    alter_subscription(cluster, args.name, given)
    output.done(f"Altered subscription {args.name}.", {"subscription": args.name, "altered": given})


@command("client-metrics delete", "Remove a subscription: its clients push no longer.", NAME, YES, needs="ALTER_CONFIGS CLUSTER")
def _delete(args: Args, cluster: Cluster, output: Output) -> None:
    _check_exists(subscription_names(cluster), args.name)
    confirm(args, f"Delete subscription {args.name}?")
    delete_subscription(cluster, args.name)
    output.done(f"Deleted subscription {args.name}.", {"subscription": args.name})


@command(
    "client-metrics show",
    "The clients that push metrics, or the metrics of one client.",
    option("client", nargs="?", metavar="CLIENT", help="a client id or client instance id: its metrics"),
    option("--metric", metavar="PREFIX", default="", help="only metrics whose name on /metrics begins with this, after kafka_client_"),
    option("--from", dest="address", metavar="HOST:PORT", help="address of the metrics (default: ottla.metrics.listen of every broker)"),
    option("--credentials", metavar="USER:PASSWORD", help="as in ottla.metrics.credentials"),
    option("--token-file", metavar="FILE", help="as ottla.metrics.token.file"),
    option("--ca", metavar="FILE", help="use TLS and trust these PEM certificates (default: the system's, with https://)"),
    may_watch=True,
)
def _show(args: Args, output: Output) -> None:
    pushed = _pushed(args)
    if args.client is None:
        output.rows("clients", ReportingClientRow, _clients(pushed))
        return
    series = [
        SeriesRow(
            sample.labels["client_id"], sample.labels["client_instance_id"], sample.name,
            {name: value for name, value in sample.labels.items() if name not in CLIENT_LABELS}, sample.value,
        )
        for samples in pushed.values()
        for sample in samples
        if sample.name.startswith(PUSHED_PREFIX + args.metric) and args.client in (sample.labels[label] for label in CLIENT_LABELS)
    ]  # fmt: skip
    if not series and not args.metric:
        raise Refused(f"client {args.client} pushes no metrics; see `ottla client-metrics show`", "RESOURCE_NOT_FOUND")
    output.rows("series", SeriesRow, series)


def _pushed(args: Args) -> dict[str, list[Sample]]:
    """Returns the samples about clients, by the address of their broker's metrics."""
    try:
        texts = {address: scrape(address, args.credentials, token_file=args.token_file, ca_file=args.ca) for address in _addresses(args)}
    except MetricsRefused as error:
        raise Refused(str(error), error.name) from None
    except ValueError as error:
        raise UsageError(str(error)) from None
    return {
        address: [*samples_in(text, CLIENT_INFO), *samples_in(text, PUSHED_PREFIX)]
        for address, text in texts.items()
    }


def _addresses(args: Args) -> list[str]:
    if args.address:
        return [str(args.address)]
    with connect(args) as cluster:
        cluster.refresh([])
        return [metrics_address(cluster, broker_id) for broker_id in sorted(cluster.metadata.brokers)]


def _clients(pushed: Mapping[str, list[Sample]]) -> list[ReportingClientRow]:
    rows = []
    for address, samples in pushed.items():
        series = Counter(sample.labels["client_instance_id"] for sample in samples)
        for labels in (sample.labels for sample in samples if sample.name == CLIENT_INFO):
            instance_id = labels["client_instance_id"]
            software = (labels["client_software_name"], labels["client_software_version"], labels["client_source_address"])
            rows.append(ReportingClientRow(labels["client_id"], instance_id, *software, address, series[instance_id] - 1))
    return sorted(rows, key=lambda row: (row.client_id, row.instance_id))
