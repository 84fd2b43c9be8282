"""`kafka-client-metrics`: subscriptions to metrics of clients (KIP-714), with the options and lines of Kafka's ClientMetricsCommand."""

from __future__ import annotations

import os

from ottla.base.errors import ApiError
from ottla.base.uuids import fresh_uuid, uuid_to_text
from ottla.cli.cluster.client_metrics import (
    KIND,
    alter_subscription,
    delete_subscription,
    subscription_names,
)
from ottla.cli.command import Args, UsageError, command, flag, granted, option
from ottla.cli.kafka_tools.usage import Once, action_of, plain_message, refuse_options
from ottla.cli.output import write
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin

SETTINGS = {"interval": "interval.ms", "match": "match", "metrics": "metrics"}
"""The setting that each option changes."""
ACTIONS = ("alter", "delete", "describe", "list")
UNFIT = {
    "alter": (),
    "delete": ("generate_name", *SETTINGS),
    "describe": ("generate_name", *SETTINGS),
    "list": ("name", "generate_name", *SETTINGS),
}
"""Options that each action refuses."""


@command(
    "kafka-client-metrics",
    "Subscriptions to metrics of clients, as kafka-client-metrics has them.",
    flag("--alter", help="create a subscription, or change its settings"),
    flag("--delete", help="remove a subscription"),
    flag("--describe", help="show one subscription, or all"),
    flag("--list", help="names of the subscriptions"),
    option("--name", action=Once, metavar="NAME", help="of the subscription"),
    option("--generate-name", action="store_true", default=None, help="alter: a new name"),
    option("--interval", action=Once, metavar="MS", help="how often clients send metrics; empty: the default"),
    option("--match", action=Once, metavar="K=PATTERN,...", help="the clients of the subscription, as client_id=PATTERN; empty: all"),
    option("--metrics", action=Once, metavar="PREFIX,...", help="prefixes of the metrics' names; empty: none"),
    has_output=False,
)
def _run(args: Args, cluster: Cluster) -> int:
    action = action_of(args, ACTIONS)
    refuse_options(args, action, UNFIT[action])
    if action == "alter" and bool(args.name) == bool(args.generate_name):
        raise UsageError("One of --name or --generate-name must be specified with --alter.")
    if action == "delete" and not args.name:
        raise UsageError("A client metrics resource name must be specified with --delete.")
    try:
        {"alter": _alter, "delete": _delete, "describe": _describe, "list": _list}[action](cluster, args)
    except ApiError as error:
        write(f"Error while executing client metrics command : {plain_message(error)}\n")
        return 1
    return 0


def _alter(cluster: Cluster, args: Args) -> None:
    name = args.name or uuid_to_text(fresh_uuid(os.urandom(16)))
    given = {key: value for attribute, key in SETTINGS.items() if (value := getattr(args, attribute)) is not None}
    alter_subscription(cluster, name, given)
    write(f"Altered client metrics config for {name}.\n")


def _delete(cluster: Cluster, args: Args) -> None:
    delete_subscription(cluster, args.name)
    write(f"Deleted client metrics config for {args.name}.\n")


def _describe(cluster: Cluster, args: Args) -> None:
    names = subscription_names(cluster)
    if args.name:
        if args.name not in names:
            write(f"The client metric resource {args.name} doesn't exist and doesn't have dynamic config.\n")
            return
        names = [args.name]
    for name, configs in admin.describe_configs(cluster, KIND, names).items():
        write(f"Client metrics configs for {name} are:\n")
        for config in sorted(granted(configs), key=lambda config: config.name):
            write(f"  {config.name}={config.value}\n")


def _list(cluster: Cluster, _args: Args) -> None:
    write("\n".join(subscription_names(cluster)) + "\n")  # Kafka's tool prints an empty line if there is no subscription
