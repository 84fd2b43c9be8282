"""One setting: parses, checks and formats its value. A `Setting[T]` is a class attribute and a descriptor, so `config.num_partitions` has
the type `int` for the type checker. It has no `__set__`, so the values in a configuration object's `__dict__` take precedence, and reading
a value is an ordinary attribute access.

Text follows Kafka's rules: blanks around a value are ignored, booleans are true or false in any case, lists are separated by commas, and
repeated entries of a list are dropped (KIP-1161), unless the setting refuses them. An invalid value raises `SettingError` with one sentence
that names the setting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from math import isfinite
from typing import Any, Generic, NamedTuple, TypeVar, overload

T = TypeVar("T")
Valid = Callable[[Any], str]
"""Returns why a value is not valid, or an empty string. A list still has its repeated entries."""

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1


class SettingError(ValueError):
    """A value of a setting is invalid. The message is one sentence."""


class Type(IntEnum):
    """Kafka's types of configuration values; the number is the one in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(IntEnum):
    """The kind of resource that has a setting; the number is Kafka's type of configuration resource."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class UpdateMode(IntEnum):
    """Whether a broker setting may change while the broker runs, and for whom."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


class ConfigSource(IntEnum):
    """The source of a value; the numbers are Kafka's in DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class Synonym(NamedTuple):
    """One candidate for a setting's value. The first candidate of a list is in force."""

    name: str
    text: str | None
    source: ConfigSource


INTEGER_BITS = {Type.INT: 32, Type.SHORT: 16, Type.LONG: 64}


class Setting(Generic[T]):
    """One line of the table. `broker_names` of a setting of topics or groups: the broker settings that it falls back on, each with the
    factor to its own unit. The first one with a value is used.
    """

    __slots__ = ("attribute", "broker_names", "default", "doc", "is_internal", "is_sensitive", "name", "scope", "type", "update", "valid")

    def __init__(
        self,
        name: str,
        type_: Type,
        default: T,
        doc: str,
        *,
        valid: Valid | None = None,
        update: UpdateMode = UpdateMode.READ_ONLY,
        scope: Scope = Scope.BROKER,
        broker_names: Sequence[tuple[str, int]] = (),
        is_internal: bool = False,
    ) -> None:
        self.name = name
        self.attribute = ""
        self.type = type_
        self.default = default
        self.doc = doc
        self.valid = valid
        self.update = update
        self.scope = scope
        self.broker_names = broker_names
        self.is_sensitive = type_ is Type.PASSWORD
        self.is_internal = is_internal

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute

    @overload
    def __get__(self, instance: None, owner: type) -> Setting[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> T | Setting[T]:
        return self if instance is None else self.default

    @property
    def is_dynamic(self) -> bool:
        """Whether the setting may change while the broker runs. Settings of topics, groups and client metrics always may."""
        return self.scope is not Scope.BROKER or self.update is not UpdateMode.READ_ONLY

    @property
    def default_text(self) -> str | None:
        return None if self.default is None else self.text(self.default)

    @property
    def valid_text(self) -> str:
        """Describes the valid values, for people."""
        return "" if self.valid is None else str(getattr(self.valid, "description", ""))

    def parse(self, text: str) -> T:
        """Returns the value of a text. Raises `SettingError`."""
        value: Any = self._read(text.strip())
        reason = self.valid(value) if self.valid is not None else ""
        if reason:
            raise SettingError(self._refusal(text, reason))
        return tuple(dict.fromkeys(value)) if self.type is Type.LIST else value  # type: ignore[return-value]

    def text(self, value: Any) -> str:
        """Returns the value as text, as in a configuration file."""
        if self.type is Type.BOOLEAN:
            return "true" if value else "false"
        if self.type is Type.LIST:
            return ",".join(value)
        if self.type is Type.DOUBLE:
            return double_text(value)
        return "" if value is None else str(value)

    def _read(self, text: str) -> T:
        value: Any
        if self.type is Type.BOOLEAN:
            value = {"true": True, "false": False}.get(text.lower())
            if value is None:
                raise SettingError(self._refusal(text, "Expected value to be either true or false"))
        elif self.type in INTEGER_BITS:
            value = self._read_integer(text)
        elif self.type is Type.DOUBLE:
            value = self._read_double(text)
        elif self.type is Type.LIST:
            value = tuple(part.strip() for part in text.split(",")) if text else ()
        else:
            value = text
        return value  # type: ignore[no-any-return]

    def _read_integer(self, text: str) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
            raise SettingError(self._refusal(text, f"Not a number of type {self.type.name}"))
        value = int(text)
        bits = INTEGER_BITS[self.type]
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise SettingError(self._refusal(text, f"Not a number of type {self.type.name}"))
        return value

    def _read_double(self, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise SettingError(self._refusal(text, "Not a number of type DOUBLE")) from None

    def _refusal(self, text: str, reason: str) -> str:
        shown = "[hidden]" if self.is_sensitive else text
        return f"Invalid value {shown} for configuration {self.name}: {reason}"


def double_text(value: float) -> str:
    """Formats a finite number as Java does: `0.5`, `1.0E10`; tools compare the text."""
    if value == 0 or not isfinite(value) or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    from decimal import Decimal

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{int(exponent) + len(rest)}"


class Between:
    """Numbers from `low` to `high` (inclusive; None: no bound), and the numbers in `also`."""

    __slots__ = ("also", "high", "low")

    def __init__(self, low: float | None, high: float | None = None, *, also: Sequence[int] = ()) -> None:
        self.low = low
        self.high = high
        self.also = also

    @property
    def description(self) -> str:
        bounds = ",".join(str(part) for part in (self.low, "...", self.high) if part is not None)
        return f"[{bounds}]" + "".join(f" or {value}" for value in self.also)

    def __call__(self, value: Any) -> str:
        if value is None or value in self.also:
            return ""
        if self.low is not None and not value >= self.low:
            return f"Value must be at least {self.low}"
        if self.high is not None and not value <= self.high:
            return f"Value must be no more than {self.high}"
        return ""


class OneOf:
    """One of these words, in this spelling, or with `any_case` in any case."""

    __slots__ = ("any_case", "words")

    def __init__(self, *words: str, any_case: bool = False) -> None:
        self.words = words
        self.any_case = any_case

    @property
    def description(self) -> str:
        return f"[{', '.join(self.words)}]"

    def __call__(self, value: Any) -> str:
        if value in self.words or (self.any_case and any(str(value).lower() == word.lower() for word in self.words)):
            return ""
        return f"String must be one of: {', '.join(self.words)}"


class SomeOf:
    """A list of these words."""

    __slots__ = ("may_be_empty", "words")

    def __init__(self, *words: str, may_be_empty: bool = False) -> None:
        self.words = words
        self.may_be_empty = may_be_empty

    @property
    def description(self) -> str:
        return f"[{', '.join(self.words)}]"

    def __call__(self, value: Any) -> str:
        if not value and not self.may_be_empty:
            return "The list must not be empty"
        if any(word not in self.words for word in value):
            return f"String must be one of: {', '.join(self.words)}"
        return ""


class Distinct:
    """A list of different words, none of them empty."""

    description = "different words"

    def __call__(self, value: Any) -> str:
        if not all(value):
            return "The list must not have empty entries"
        return "" if len(set(value)) == len(value) else "The list must not have an entry twice"


def at_least(low: int) -> Between:
    return Between(low)


def integer(name: str, default: int, doc: str, **options: Any) -> Setting[int]:
    return Setting(name, Type.INT, default, doc, **options)


def maybe_integer(name: str, doc: str, **options: Any) -> Setting[int | None]:
    return Setting(name, Type.INT, None, doc, **options)


def short(name: str, default: int, doc: str, **options: Any) -> Setting[int]:
    return Setting(name, Type.SHORT, default, doc, **options)


def long(name: str, default: int, doc: str, **options: Any) -> Setting[int]:
    return Setting(name, Type.LONG, default, doc, **options)


def maybe_long(name: str, doc: str, **options: Any) -> Setting[int | None]:
    return Setting(name, Type.LONG, None, doc, **options)


def double(name: str, default: float, doc: str, **options: Any) -> Setting[float]:
    return Setting(name, Type.DOUBLE, default, doc, **options)


def boolean(name: str, default: bool, doc: str, **options: Any) -> Setting[bool]:
    return Setting(name, Type.BOOLEAN, default, doc, **options)


def string(name: str, default: str, doc: str, **options: Any) -> Setting[str]:
    return Setting(name, Type.STRING, default, doc, **options)


def maybe_string(name: str, doc: str, **options: Any) -> Setting[str | None]:
    return Setting(name, Type.STRING, None, doc, **options)


def maybe_password(name: str, doc: str, **options: Any) -> Setting[str | None]:
    """Declares an optional password, which is never shown in answers or in the log."""
    return Setting(name, Type.PASSWORD, None, doc, **options)


def words(name: str, default: tuple[str, ...], doc: str, **options: Any) -> Setting[tuple[str, ...]]:
    return Setting(name, Type.LIST, default, doc, **options)


def settings_of(owner: type) -> tuple[Setting[Any], ...]:
    """Returns the settings of a class and its bases, sorted by name."""
    found: dict[str, Setting[Any]] = {}
    for base in owner.__mro__:
        for value in vars(base).values():
            if isinstance(value, Setting):
                found.setdefault(value.name, value)
    return tuple(found[name] for name in sorted(found))
