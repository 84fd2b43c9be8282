"""Evaluates the options that all commands have: the connection to the cluster and the form of output. `parser.py` declares these options.

Precedence: option > -X > --command-config > environment > profile > default. Names of properties are Kafka's (`bootstrap.servers`,
`security.protocol`, `sasl.*`, `ssl.*`, `client.id`, `request.timeout.ms`); librdkafka's names for the same properties are accepted too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.cli.command import Args, UsageError, hidden, parse_pairs
from ottla.cli.input_files import read_text
from ottla.cli.output import wants_colour
from ottla.cli.render.ottla import Output
from ottla.client.addresses import DEFAULT_BOOTSTRAP, addresses_in

if TYPE_CHECKING:
    from ottla.client.blocking.cluster import Cluster

DEFAULT_TIMEOUT_MS = 15_000

_SAME = {"metadata.broker.list": "bootstrap.servers", "sasl.mechanisms": "sasl.mechanism", "ssl.ca.location": "ssl.truststore.location"}

BROKER_LIST = hidden("--broker-list", dest="bootstrap", metavar="HOST:PORT[,...]")
"""Adds --broker-list as the old name of --bootstrap-server. In other tools it is a list of broker ids."""


def output_of(args: Args) -> Output:
    """Returns the output of a command in the form that the options name. If the command line was translated from a Kafka tool, the output
    has this tool's form.
    """
    form, is_quiet, is_verbose = getattr(args, "output", None) or "table", getattr(args, "quiet", False), getattr(args, "verbose", False)
    printers = getattr(args, "printers", None)
    if printers is not None:
        from ottla.cli.render.kafka import KafkaOutput

        return KafkaOutput(printers, form, is_quiet=is_quiet, is_verbose=is_verbose)
    return Output(
        form,
        is_quiet=is_quiet,
        is_verbose=is_verbose,
        has_colour=form == "table" and wants_colour(sys.stdout, is_forbidden=getattr(args, "no_color", False)),
    )


def properties_of(args: Args, environment: Mapping[str, str] | None = None, *, with_current_profile: bool = True) -> dict[str, str]:
    """Returns all client properties, merged by precedence. Without `with_current_profile`, only the profile that `--profile` names is used.
    Raises UsageError if a file or a pair cannot be read."""
    environment = os.environ if environment is None else environment
    found: dict[str, str] = {}

    def put(properties: Mapping[str, str]) -> None:
        found.update({_SAME.get(key, key): value for key, value in properties.items()})

    if with_current_profile or getattr(args, "profile", None) is not None:
        from ottla.cli.profile_file import profile_properties

        put(profile_properties(getattr(args, "profile", None), environment))
    if addresses := addresses_in(environment):
        put({"bootstrap.servers": addresses})
    if getattr(args, "command_config", None):
        put(read_properties(args.command_config))
    for words in (*getattr(args, "property_lists", []), getattr(args, "properties", [])):
        put(parse_pairs(words, "-X"))
    if getattr(args, "bootstrap", None) is not None:
        put({"bootstrap.servers": args.bootstrap})
    return found


def read_properties(path: str) -> dict[str, str]:
    """Reads a Java properties file: `key=value` or `key: value`, comments, continued lines. Raises UsageError."""
    text = read_text(path)
    from ottla.base.settings.setting import SettingError
    from ottla.base.settings.sources import parse_properties

    try:
        return parse_properties(text)
    except SettingError as error:
        raise UsageError(f"cannot read {path}: {error}") from None


def connect(args: Args, *, timeout_ms: int | None = None, with_extensions: bool = False) -> Cluster:
    """Returns the cluster that the options name, without a connection yet. Raises UsageError for an invalid property."""
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.security import security_of

    properties = properties_of(args)
    wait = timeout_ms or getattr(args, "timeout", None) or properties.get("request.timeout.ms") or DEFAULT_TIMEOUT_MS
    try:
        return Cluster(
            properties.get("bootstrap.servers", DEFAULT_BOOTSTRAP),
            client_id=properties.get("client.id", "ottla"),
            timeout_s=max(0.1, float(wait) / 1000),
            security=security_of(properties),
            with_extensions=with_extensions,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
