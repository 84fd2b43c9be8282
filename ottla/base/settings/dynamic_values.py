"""Dynamic values of a broker's settings: checks new values, and selects the usable stored ones.

A setting of one listener (`listener.name.NAME.SETTING`) is checked like `SETTING`. It can be set only for one broker, except for limits of
connections, which can be cluster-wide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.settings.gathering import Notice
from ottla.base.settings.listener_values import SETTINGS_OF_LISTENERS
from ottla.base.settings.security import LISTENER_LIMITS, split_listener_name
from ottla.base.settings.setting import Setting, SettingError, UpdateMode

Table = Mapping[str, Setting[Any]]
SECRET_WORDS = ("password", "secret", "jaas", ".key")
"""Words that mark an unserved setting as secret, if its name contains one."""


def usable_values(table: Table, values: Mapping[str, str], notices: list[Notice]) -> dict[str, str]:
    """Returns the usable stored values. Adds a notice for each invalid value. Ignores names that are not served or read-only."""
    usable = {}
    for name, text in values.items():
        of_listener = split_listener_name(name)
        setting = table.get(name if of_listener is None else of_listener.setting)
        if setting is None or setting.update is UpdateMode.READ_ONLY:
            continue
        try:
            setting.parse(text)
        except SettingError as error:
            notices.append(Notice(True, f"the stored dynamic value of {name} has no effect: {error}"))
            continue
        usable[name] = text
    return usable


def check_values(table: Table, values: Mapping[str, str | None], *, is_cluster_default: bool) -> None:
    """Raises `ApiError` INVALID_REQUEST or INVALID_CONFIG if one of the values cannot be set while the broker runs. The text of a setting
    that is not served is not checked."""
    for name, text in values.items():
        setting, is_per_broker = _setting(table, name)
        if setting is not None and setting.update is UpdateMode.READ_ONLY:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{name}]")
        if is_cluster_default and is_per_broker:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update this config at the default cluster level: {name}")
        if text is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for broker configs: {name}")
        if setting is not None:
            parse_for_client(setting, text, ErrorCode.INVALID_REQUEST)


def _setting(table: Table, name: str) -> tuple[Setting[Any] | None, bool]:
    """Returns the setting of this name (None if it is not served), and whether it can be set only for one broker."""
    of_listener = split_listener_name(name)
    if of_listener is not None:
        return SETTINGS_OF_LISTENERS[of_listener.setting], of_listener.setting not in LISTENER_LIMITS
    setting = table.get(name)
    return setting, has_secret_word(name) if setting is None else setting.update is UpdateMode.PER_BROKER


def has_secret_word(name: str) -> bool:
    return any(word in name for word in SECRET_WORDS)


def is_password(table: Table, name: str) -> bool:
    """Whether the setting is a password that may be stored. Passwords are stored encrypted, and only for one broker."""
    setting, _ = _setting(table, name)
    return holds_secret(table, name) and (setting is None or setting.update is not UpdateMode.READ_ONLY)


def holds_secret(table: Table, name: str) -> bool:
    """Whether the value of the setting must not be shown."""
    setting, _ = _setting(table, name)
    return has_secret_word(name) if setting is None else setting.is_sensitive


def parse_for_client(setting: Setting[Any], text: str, code: ErrorCode = ErrorCode.INVALID_CONFIG) -> Any:
    """Returns the value. Raises `ApiError` with `code`: Kafka answers INVALID_REQUEST for settings of brokers, and INVALID_CONFIG for
    settings of other resources."""
    try:
        return setting.parse(text)
    except SettingError as error:
        raise ApiError(code, str(error)) from None
