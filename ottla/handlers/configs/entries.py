"""The settings of a topic, broker, group or metrics subscription with value and source, for DescribeConfigs and CreateTopics.

A secret is never shown, not even to the client that set it: its value is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.base.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, BrokerConfig, ConfigSource, Setting, Synonym, Type
from ottla.base.settings.client_metrics import CLIENT_METRICS_SETTINGS
from ottla.base.settings.dynamic_values import has_secret_word
from ottla.base.settings.listener_values import SETTINGS_OF_LISTENERS
from ottla.base.settings.security import split_listener_name

BROKER_ID_NAMES = ("broker.id", "node.id")


class ShownSetting(NamedTuple):
    setting: Setting[Any]
    value: str | None
    source: ConfigSource
    is_read_only: bool
    synonyms: list[Synonym]


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ShownSetting]:
    entries = []
    for name, setting in TOPIC_SETTINGS.items():
        if setting.default is None and name not in overrides:
            continue  # An internal setting that is not set.
        synonyms = config.topic_synonyms(name, overrides)
        value = config.topic_value(name, overrides)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        entries.append(ShownSetting(setting, setting.text(value), source, False, synonyms))
    return entries


def group_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ShownSetting]:
    entries = []
    for name, setting in GROUP_SETTINGS.items():
        synonyms = config.group_synonyms(name, overrides)
        value = setting.text(config.group_value(name, overrides))
        entries.append(ShownSetting(setting, value, synonyms[0].source, False, synonyms))
    return entries


def client_metrics_entries(overrides: Mapping[str, str]) -> list[ShownSetting]:
    """Returns all settings of a metrics subscription. As in Kafka, a default has no synonym."""
    entries = []
    for name, setting in CLIENT_METRICS_SETTINGS.items():
        synonyms = [Synonym(name, overrides[name], ConfigSource.DYNAMIC_CLIENT_METRICS)] if name in overrides else []
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        entries.append(ShownSetting(setting, overrides.get(name, setting.default_text), source, False, synonyms))
    return entries


def broker_entries(config: BrokerConfig, own: Mapping[str, str], default: Mapping[str, str]) -> list[ShownSetting]:
    """Returns the broker's settings in force except internal ones, and unknown stored settings of this broker (`own`) or of all brokers
    (`default`)."""
    entries = []
    for name, setting in BROKER_SETTINGS.items():
        if setting.is_internal:
            continue
        synonyms = config.synonyms(name)
        # Two names of the broker id; at most one of them is set.
        value = str(config.this_broker_id) if name in BROKER_ID_NAMES else config.text(name)
        entries.append(ShownSetting(setting, value, synonyms[0].source, not setting.is_dynamic, synonyms))
    for name in sorted({*own, *default} - BROKER_SETTINGS.keys()):
        levels = ((own, ConfigSource.DYNAMIC_BROKER), (default, ConfigSource.DYNAMIC_DEFAULT_BROKER))
        entries.append(_stored_entry(name, [Synonym(name, values[name], source) for values, source in levels if name in values]))
    return entries


def default_broker_entries(overrides: Mapping[str, str]) -> list[ShownSetting]:
    """Returns only the settings that are set for all brokers together."""
    entries = []
    for name in sorted(overrides):
        setting = BROKER_SETTINGS.get(name)
        synonym = Synonym(name, overrides[name], ConfigSource.DYNAMIC_DEFAULT_BROKER)
        if setting is None:
            entries.append(_stored_entry(name, [synonym]))
        else:
            entries.append(ShownSetting(setting, overrides[name], synonym.source, not setting.is_dynamic, [synonym]))
    return entries


def _stored_entry(name: str, synonyms: list[Synonym]) -> ShownSetting:
    """Returns a stored setting that is missing in `BROKER_SETTINGS`: a listener's setting, or a setting that this broker does not use. A
    setting that Kafka does not know either is treated as a secret, as in Kafka."""
    from ottla.base.settings.known import is_known_to_kafka

    of_listener = split_listener_name(name)
    if of_listener is not None:
        own = SETTINGS_OF_LISTENERS[of_listener.setting]
        setting: Setting[Any] = Setting(name, own.type, own.default, own.doc, valid=own.valid, update=own.update)
        return ShownSetting(setting, synonyms[0].text, synonyms[0].source, False, synonyms)
    is_secret = not is_known_to_kafka(name) or has_secret_word(name)
    setting = Setting(name, Type.PASSWORD if is_secret else Type.STRING, "", "Stored, but not used by this broker.")
    return ShownSetting(setting, synonyms[0].text, synonyms[0].source, False, synonyms)


def shown(setting: Setting[Any], text: str | None) -> str | None:
    return None if setting.is_sensitive else text
