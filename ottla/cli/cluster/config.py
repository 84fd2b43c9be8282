"""`ottla config`: shows and changes the settings of a cluster. `check` and `defaults` use the settings tables of this program, without a
connection.

Users, clients and ips have quotas instead of settings (`config_entities.py`).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode, OttlaError
from ottla.cli.cluster.config_entities import ENTITY_OPTIONS, RESOURCES, alter_quotas, describe_quotas, entities_of
from ottla.cli.command import Args, UsageError, command, flag, granted, merged, option
from ottla.cli.input_files import file_text, read_text
from ottla.cli.options import read_properties
from ottla.cli.render.ottla import Output, Row, column, json_only
from ottla.cli.setting_values import parse_settings
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.scram_admin import MECHANISMS
from ottla.client.core import admin

SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
DYNAMIC = {
    admin.TOPIC_RESOURCE: 1,
    admin.BROKER_RESOURCE: 2,
    admin.BROKER_LOGGER_RESOURCE: 6,
    admin.CLIENT_METRICS_RESOURCE: 7,
    admin.GROUP_RESOURCE: 8,
}
DYNAMIC_DEFAULT_BROKER = 3
"""The config source of `--entity-default`. Without `--all`, `describe` shows only settings from the entity's own source (`DYNAMIC`)."""


class ConfigRow(Row):
    entity_name: str = column("NAME")
    key: str
    value: str | None
    source: str
    sensitive: bool
    entity_type: str = json_only()
    read_only: bool = json_only()
    synonyms: list[dict[str, Any]] = json_only()


class EntityConfigs(NamedTuple):
    """The settings of an entity. Kafka's tool prints them (`kafka_tools/configs_output.py`)."""

    word: str
    entity: str
    rows: list[ConfigRow]
    is_all: bool


class SettingRow(Row):
    """A setting of a broker, topic or group, with its default and description."""

    key: str
    default: str | None
    type: str
    doc: str


@command(
    "config describe",
    "Settings of topics, brokers, groups.",
    *ENTITY_OPTIONS,
    flag("--all", help="defaults too"),
    option("--principal", metavar="User:NAME", help="credentials, quotas, access rules and tokens of a user"),
    may_watch=True,
)
def _describe(args: Args, cluster: Cluster, output: Output) -> None:
    if getattr(args, "principal", None) is not None:
        from ottla.cli.cluster import config_principal

        config_principal.describe(args, cluster, output)
        return
    asked = entities_of(args)
    if asked.has_quotas:
        describe_quotas(cluster, output, asked)
        return
    word, name = asked.parts[0]
    resource_type = RESOURCES[word]
    names = _names(cluster, resource_type, name)
    found = admin.describe_configs(cluster, resource_type, names, synonyms=True) if names else {}
    entities = []
    for entity, configs in sorted(found.items()):
        own = DYNAMIC_DEFAULT_BROKER if resource_type == admin.BROKER_RESOURCE and not entity else DYNAMIC[resource_type]
        shown = [entry for entry in granted(configs) if args.all or entry.config_source == own]
        entities.append(
            EntityConfigs(word, entity, [_row(word, entity, entry) for entry in sorted(shown, key=lambda one: str(one.name))], args.all)
        )
    for one in entities:
        output.report(one)
    output.rows("configs", ConfigRow, [row for one in entities for row in one.rows])


def _names(cluster: Cluster, resource_type: int, name: str | None) -> list[str]:
    """Returns the named entity, or all entities of the type. Raises `ApiError` for an unknown topic."""
    if name is not None:
        if resource_type == admin.TOPIC_RESOURCE:
            cluster.topic(name)
        return [name]
    if resource_type == admin.TOPIC_RESOURCE:
        return cluster.topic_names()
    if resource_type in (admin.BROKER_RESOURCE, admin.BROKER_LOGGER_RESOURCE):
        cluster.refresh([])
        return [str(broker_id) for broker_id in sorted(cluster.metadata.brokers)]
    return [found for _, found in admin.list_config_resources(cluster, [resource_type])]


def _row(word: str, entity: str, entry: Any) -> ConfigRow:
    synonyms = [{"key": one.name, "value": one.value, "source": SOURCES.get(one.source, "UNKNOWN")} for one in entry.synonyms]
    value = None if entry.is_sensitive else entry.value
    source = SOURCES.get(entry.config_source, "UNKNOWN")
    return ConfigRow(entity or "(default)", entry.name, value, source, entry.is_sensitive, word, entry.read_only, synonyms)


@command(
    "config alter",
    "Change settings.",
    *ENTITY_OPTIONS,
    option("--add-config", action="append", metavar="K=V,...", help="set; a list goes in square brackets: k=[a,b]"),
    option("--add-config-file", metavar="FILE", help="set the pairs of this properties file"),
    option("--delete-config", action="append", metavar="K,...", help="reset to the default"),
    flag("--dry-run", help="only validate the change on the broker"),
)
def _alter(args: Args, cluster: Cluster, output: Output) -> None:
    entities = entities_of(args)
    if not entities.is_named:
        raise UsageError("name the one to alter, or give --entity-default")
    changes, deletions = changes_of(args)
    remark = None
    word, name = entities.parts[0]
    if entities.has_quotas:
        remark = alter_quotas(args, cluster, entities, changes, deletions)
    else:
        resource_type = RESOURCES[word]
        _names(cluster, resource_type, name)
        admin.alter_configs(cluster, resource_type, name or "", changes=changes, deletions=deletions, validate_only=args.dry_run)
    if remark:
        output.note(f"note: {remark}")
    shown = {key: value if key not in MECHANISMS else "[hidden]" for key, value in changes.items()}
    what = {
        "entity_type": ",".join(part for part, _ in entities.parts),
        "entity_name": ",".join(found or "(default)" for _, found in entities.parts),
    }
    done = "could be updated" if args.dry_run else "Completed updating"
    whose = f"config for {word.removesuffix('s')} {name}" if name else f"default config for {word} in the cluster"
    message = f"The {whose} {done}." if args.dry_run else f"{done} {whose}."
    output.done(message, {**what, "configs": shown, "deleted_configs": deletions, "dry_run": args.dry_run})


def changes_of(args: Args) -> tuple[dict[str, str], list[str]]:
    """Returns the settings to set and the keys to reset. Raises `UsageError` if there is no change, or a key is both set and reset."""
    if args.add_config and args.add_config_file:
        raise UsageError("either --add-config or --add-config-file")
    changes = read_properties(args.add_config_file) if args.add_config_file else parse_settings(args.add_config, "--add-config")
    deletions = merged(args.delete_config)
    if not changes and not deletions:
        raise UsageError("give a change: --add-config, --add-config-file or --delete-config")
    both = sorted(set(changes) & set(deletions))
    if both:
        raise UsageError(f"{both[0]} is both set and deleted")
    return changes, deletions


@command(
    "config check",
    "Check a broker's configuration file.",
    option("file", metavar="FILE", help="server.properties or TOML"),
    flag("--environment", help="with this environment's KAFKA_* variables too"),
    flag("--strict", help="exit code 1 also for warnings"),
    has_connection=False,
)
def _check(args: Args, output: Output) -> int:
    from ottla.base.config import BROKER_SETTINGS, ConfigError, gather, problems

    text = read_text(args.file)
    try:
        environment = os.environ if args.environment else {}
        given, notices = gather(
            tuple(BROKER_SETTINGS), file_text=text, file_name=args.file, environment=environment, read_file=file_text
        )  # fmt: skip
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    wrong = problems(given)
    ends = [] if wrong else _judge_certificates(given, wrong)
    if not wrong:
        wrong += _judge_token_login(given)
    rows = [{"level": "warning" if notice.is_warning else "info", "message": notice.text} for notice in notices]
    rows += [{"level": "warning", "message": text} for text in ends]
    rows += [{"level": "error", "message": text} for text in wrong]
    warnings = sum(row["level"] == "warning" for row in rows)
    is_refused = bool(wrong) or (args.strict and warnings > 0)
    if output.is_structured:
        output.show_object({"file": args.file, "ok": not is_refused, "warnings": warnings, "notices": rows})
        if wrong:
            raise ApiError(ErrorCode.INVALID_CONFIG, wrong[0])
        return int(is_refused)
    for row in rows:
        output.note(f"{row['level']}: {row['message']}")
    if wrong:
        return 1
    state = f"usable, {counted(warnings, 'warning')}" if warnings else "fine"
    output.done(f"{args.file} is {state}.", {})
    return int(is_refused)


def _judge_certificates(given: Any, wrong: list[str]) -> list[str]:
    """Returns warnings about certificates that expire soon. Adds TLS errors that prevent the broker's start to `wrong`."""
    from ottla.base.config import BrokerConfig

    config, found = BrokerConfig(given), []
    for endpoint in config.endpoints:
        if endpoint.is_tls:
            from ottla.adapters.tls_context import certificate_end, end_warning, server_context
            from ottla.base.ports import AddressError

            options = config.of_listeners.tls(endpoint.name)
            try:
                server_context(options)
                warning = end_warning(certificate_end(options), datetime.now(UTC))
            except AddressError as error:
                wrong.append(str(error))
            else:
                found += [f"listener {endpoint.name}: {warning}"] if warning else []
    return found


def _judge_token_login(given: Any) -> list[str]:
    """Returns the reasons why the broker could not get a token for its login to other brokers."""
    from ottla.base.config import BrokerConfig
    from ottla.base.settings.token_login import TokenLogin

    config = BrokerConfig(given)
    endpoint = next(one for one in config.endpoints if one.name == config.inter_broker_listener)
    login = None if config.is_single_broker else config.of_listeners.broker_login(endpoint)
    if not isinstance(login, TokenLogin):
        return []
    from ottla.client.security import tokens_of

    try:
        source = tokens_of(login.properties)
        if login.is_by_file:
            source.token()
    except (ValueError, OttlaError) as error:
        return [f"listener {endpoint.name}: {error}"]
    return []


@command(
    "config defaults",
    "The settings that Ottla's broker knows, with defaults.",
    option("--scope", choices=("broker", "topic", "group"), default="broker", help="broker|topic|group"),
    option("names", nargs="*", metavar="KEY", help="only these"),
    has_connection=False,
)
def _defaults(args: Args, output: Output) -> None:
    from ottla.base.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS

    table: dict[str, Any] = dict({"broker": BROKER_SETTINGS, "topic": TOPIC_SETTINGS, "group": GROUP_SETTINGS}[args.scope])
    for name in args.names:
        if name not in table:
            from ottla.client.blocking.cluster import nearest_hint

            raise UsageError(f"no setting {name!r}{nearest_hint(name, table)}")
    rows = [
        SettingRow(name, None if setting.default is None else setting.text(setting.default), setting.type.name.lower(), setting.doc)
        for name, setting in sorted(table.items())
        if not args.names or name in args.names
    ]
    output.rows("settings", SettingRow, rows)
