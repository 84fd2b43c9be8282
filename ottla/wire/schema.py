"""The declaration of the protocol's messages.

A message is one class with the fields of all its versions. Each field says which versions have it:

    class TopicProduceData(Struct):
        name: str = string(until=12, ignorable=True)
        topic_id: Uuid = uuid(since=13, ignorable=True)
        partition_data: list[PartitionProduceData] = array(PartitionProduceData)

`codec.py` turns a declaration into plain Python functions for one version, whose source is generated and compiled on first use
(`decoding.py`, `encoding.py`). The import of a message compiles nothing, not even an `__init__`.

Instances have slots, are built with keywords, compare by value, and are mutable, because a frozen object takes three times as long to
build, and every request builds messages. The code that builds or decodes a message may change it. The exception is a nested struct at its
default: it is one shared instance, which refuses assignment and must be replaced.

"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, ParamSpec, TypeVar, dataclass_transform

from ottla.base import uuids
from ottla.wire import primitives
from ottla.wire.apis import APIS, KEYS

Buffer = primitives.Buffer
Uuid = uuids.Uuid
ZERO_UUID = uuids.ZERO_UUID
Records = Any  # bytes-like when decoded; in a response also an object with a length, such as a slice of a file

VERSION_MAX = 0x7FFF

# The letter of each fixed-width type in the format strings of the `struct` module.
FIXED = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u16": "H", "u32": "I", "f64": "d", "boolean": "?", "uuid": "16s"}


class Field:
    """One field: its type, the versions that have it, its default, and whether it may be null. The functions below build it."""

    __slots__ = ("classic", "default", "ignorable", "kind", "name", "nullable_since", "of", "since", "tag", "until")

    def __init__(
        self,
        kind: str,
        default: object,
        *,
        of: Field | type[Struct] | None = None,
        since: int = 0,
        until: int = VERSION_MAX,
        nullable: bool = False,
        nullable_since: int | None = None,
        tag: int | None = None,
        ignorable: bool = False,
        classic: bool = False,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.of = of
        self.since = since
        self.until = until
        self.default = default
        self.nullable_since = since if nullable and nullable_since is None else nullable_since
        self.tag = tag
        self.ignorable = ignorable
        self.classic = classic

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_nullable(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and self.is_in(version)

    @property
    def struct(self) -> type[Struct]:
        """Returns the class of a nested struct, or of an array's elements."""
        assert isinstance(self.of, type)
        return self.of

    @property
    def element(self) -> Field:
        """Returns a field that describes one element of an array."""
        if isinstance(self.of, Field):
            return self.of
        return Field("nested", None, of=self.of)


# The functions that declare a field. They return Any, so that a type checker uses the annotation beside them and takes the declaration for
# the field's default. All have the options since and until (first and last version that has the field), default, nullable or nullable_since
# (null is allowed), tag (number of a tagged field), ignorable (versions without the field ignore its value).


def i8(*, default: int = 0, **options: Any) -> Any:
    return Field("i8", default, **options)


def i16(*, default: int = 0, **options: Any) -> Any:
    return Field("i16", default, **options)


def i32(*, default: int = 0, **options: Any) -> Any:
    return Field("i32", default, **options)


def i64(*, default: int = 0, **options: Any) -> Any:
    return Field("i64", default, **options)


def u16(*, default: int = 0, **options: Any) -> Any:
    return Field("u16", default, **options)


def u32(*, default: int = 0, **options: Any) -> Any:
    return Field("u32", default, **options)


def f64(*, default: float = 0.0, **options: Any) -> Any:
    return Field("f64", default, **options)


def boolean(*, default: bool = False, **options: Any) -> Any:
    return Field("boolean", default, **options)


def uuid(*, default: Uuid = ZERO_UUID, **options: Any) -> Any:
    return Field("uuid", default, **options)


def string(*, default: str | None = "", **options: Any) -> Any:
    """Text. `classic=True` keeps the int16 length even in flexible versions (the client id of a request header)."""
    return Field("string", default, **options)


def octets(*, default: bytes | None = b"", **options: Any) -> Any:
    """Bytes with a length. A decoder copies them out of the frame."""
    return Field("octets", default, **options)


def records(*, default: bytes | None = None, **options: Any) -> Any:
    """Record batches with a length. A decoder does not copy them: the value is a memoryview of the frame."""
    return Field("records", default, **options)


def array(of: type[Struct] | Callable[..., Any], *, default: list[Any] | None = [], **options: Any) -> Any:  # noqa: B006
    """A list of structs (`array(FetchTopic)`) or of primitives (`array(i32)`). Its default is a new empty list for each message, or
    None."""
    element: Any = of if isinstance(of, StructType) else of()
    return Field("array", default, of=element, **options)


def nested(of: type[Struct], **options: Any) -> Any:
    """A struct in a struct. Its default is a shared frozen instance, or None if the declaration says `default=None`."""
    default = options.pop("default", of)
    return Field("nested", default, of=of, **options)


class StructType(type):
    """Turns the field declarations of a class into slots. It is a metaclass because slots must be set before the class is created."""

    __fields__: tuple[Field, ...]
    API_KEY: int
    VERSIONS: tuple[int, int]
    FLEXIBLE_SINCE: int | None

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        key: int = -1,
        versions: tuple[int, int] | None = None,
        flexible: int | None = None,
    ) -> StructType:
        names = [attribute for attribute, value in namespace.items() if type(value) is Field]
        fields = []
        for attribute in names:
            field = namespace.pop(attribute)
            field.name = attribute
            fields.append(field)
        namespace["__slots__"] = tuple(names)
        if fields:
            namespace["__fields__"] = tuple(fields)
        kind = bases[0].__name__ if bases else ""
        if kind in ("Request", "Response"):
            key = KEYS[name.removesuffix(kind)]
            api = APIS[key]
            versions, flexible = (api.lowest, api.highest), api.flexible_since
        if versions is not None:
            namespace["API_KEY"] = key
            namespace["VERSIONS"] = versions
            namespace["FLEXIBLE_SINCE"] = flexible
        return type.__new__(mcs, name, bases, namespace)

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_message: Any) -> None:
        type.__init__(cls, name, bases, namespace)


@dataclass_transform(kw_only_default=True)
class Struct(metaclass=StructType):
    __fields__: ClassVar[tuple[Field, ...]] = ()
    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable

    def __init__(self, **values: Any) -> None:
        """Compiles the class's constructor and replaces itself by it: it runs once for each class, for the first instance."""
        cls = type(self)
        initializer = compile_initializer(cls)
        cls.__init__ = initializer  # type: ignore[method-assign]
        initializer(self, **values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or self.__fields__ is not other.__fields__:
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.__fields__)

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.__fields__)
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A top-level struct with a range of versions. `FLEXIBLE_SINCE` is the first version with compact lengths and tags."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE_SINCE: ClassVar[int | None]

    @classmethod
    def usual(cls, version: int) -> list[Message]:
        """Returns examples of the most frequent shapes of the message, for `usual_shapes.py`."""
        return []


class Request(Message):
    """The body of a request."""


class Response(Message):
    """The body of a response."""


class Data(Message):
    """A message that is not a request or response: a header, a member's subscription, the value of a control record."""


class RecordKey(Message):
    """The key of a record in a coordinator's topic, after the int16 that says its kind, `API_KEY`."""


class RecordValue(Message):
    """The value of a record whose key has the same `API_KEY`, after the int16 that says its version."""


_MISSING = object()


def compile_initializer(cls: type[Struct]) -> Callable[..., None]:
    """Returns a constructor for the class that takes only keywords."""
    parameters, body, names = _constructor_source(cls)
    source = f"def __init__(self, {parameters}):\n{body}"
    exec(compile(source, f"<{cls.__name__}.__init__>", "exec"), names)
    return names["__init__"]  # type: ignore[no-any-return]


Parameters = ParamSpec("Parameters")
Built = TypeVar("Built")


def maker(cls: Callable[Parameters, Built]) -> Callable[Parameters, Built]:
    """Returns a function that builds an instance as `cls(...)` does, in little more than half the time: a call of a class with keywords
    builds a tuple and a dictionary, a call of a function does not. Modules on the hot path call `maker` once, at import.
    """
    assert isinstance(cls, StructType)
    parameters, body, names = _constructor_source(cls)
    names["new"] = object.__new__
    names["cls"] = cls
    source = f"def make({parameters}):\n    self = new(cls)\n{body}\n    return self"
    exec(compile(source, f"<maker of {cls.__name__}>", "exec"), names)
    return names["make"]  # type: ignore[no-any-return]


def _constructor_source(cls: StructType) -> tuple[str, str, dict[str, Any]]:
    """Returns the source of the constructor's parameters, the source of the assignments to `self`, and the values that they name."""
    names: dict[str, Any] = {"missing": _MISSING}
    parameters: list[str] = ["*"] if cls.__fields__ else []
    body: list[str] = []
    for number, field in enumerate(cls.__fields__):
        if field.default == []:
            parameters.append(f"{field.name}=missing")
            body.append(f"    self.{field.name} = [] if {field.name} is missing else {field.name}")
            continue
        names[f"default{number}"] = shared_default(field)
        parameters.append(f"{field.name}=default{number}")
        body.append(f"    self.{field.name} = {field.name}")
    return ", ".join(parameters), "\n".join(body) or "    pass", names


def shared_default(field: Field) -> Any:
    """Returns the value of a field that is absent. Must not be called for an array whose default is an empty list, because each message
    gets a new one."""
    return frozen_default(field.struct) if isinstance(field.default, StructType) else field.default


_frozen_defaults: dict[type[Struct], Struct] = {}


def frozen_default(cls: type[Struct]) -> Struct:
    """Returns the shared instance of `cls` with every field at its default. It refuses assignment."""
    default = _frozen_defaults.get(cls)
    if default is None:
        default = _frozen_defaults[cls] = cls()
        # A subclass without slots of its own has the same layout, so the class of a finished instance may be replaced.
        refusals = {"__setattr__": _refuse_assignment, "__reduce__": lambda _: (frozen_default, (cls,))}
        default.__class__ = StructType(cls.__name__, (cls,), refusals)  # type: ignore[assignment]
    return default


def _refuse_assignment(struct: Struct, name: str, _value: object) -> NoReturn:
    raise AttributeError(f"this {type(struct).__name__} is a shared default: put a new one in its place instead of setting {name}")


def is_flexible(cls: type[Message], version: int) -> bool:
    return cls.FLEXIBLE_SINCE is not None and version >= cls.FLEXIBLE_SINCE
