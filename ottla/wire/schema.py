"""The declaration of the protocol's messages.

A message is one class with the fields of all its versions. Each field names its versions:

    class TopicProduceData(Struct):
        name: str = string(until=12, ignorable=True)
        topic_id: Uuid = uuid(since=13, ignorable=True)
        partition_data: list[PartitionProduceData] = array(PartitionProduceData)

`codec.py` turns a declaration into plain Python functions for one version, written as source and compiled on first use
(`decoding.py`, `encoding.py`); declaring and importing messages compiles nothing, not even an `__init__`.

Instances have slots, are built by keyword, compare by value, and are mutable: a frozen object costs three times as much to build, and
messages are built on the hottest path there is. The maker or decoder of a message owns it. The one exception: a nested struct left at its
default is a single shared instance that refuses assignment; replace it, do not fill it in.

Left out: request and response headers (`framing.py`) and the meaning of any field.
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
Records = Any  # bytes-like when decoded or small; in an answer also an object with a length, such as a slice of a file

VERSION_MAX = 0x7FFF

# Each fixed-width type and its letter in the format strings of the struct module.
FIXED = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u16": "H", "u32": "I", "f64": "d", "boolean": "?", "uuid": "16s"}


class Field:
    """One field: its type, the versions that have it, and how its absence is written. Made by the functions below."""

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
        """The class of a nested struct, or of an array's elements."""
        assert isinstance(self.of, type)
        return self.of

    @property
    def element(self) -> Field:
        """An array's element as a field of its own."""
        if isinstance(self.of, Field):
            return self.of
        return Field("nested", None, of=self.of)


# The functions that declare a field. They answer Any, so that the annotation beside them says the type and a type checker takes the
# declaration for the field's default. Options, the same for all: since and until (versions that have the field), default,
# nullable or nullable_since (null allowed), tag (a tagged field), ignorable (dropped in silence by versions without it).


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
    """Bytes with a length, copied out of the frame when decoded."""
    return Field("octets", default, **options)


def records(*, default: bytes | None = None, **options: Any) -> Any:
    """Record batches with a length: a memoryview into the frame when decoded, never copied."""
    return Field("records", default, **options)


def array(of: type[Struct] | Callable[..., Any], *, default: list[Any] | None = [], **options: Any) -> Any:  # noqa: B006
    """A list of structs (`array(FetchTopic)`) or of primitives (`array(i32)`); an absent one is a fresh empty list each time."""
    element: Any = of if isinstance(of, StructType) else of()
    return Field("array", default, of=element, **options)


def nested(of: type[Struct], **options: Any) -> Any:
    """A struct in a struct. Its default is a shared frozen instance, or None where the declaration says `default=None`."""
    default = options.pop("default", of)
    return Field("nested", default, of=of, **options)


class StructType(type):
    """Turns a class body of field declarations into slots; a metaclass because slots must be there when the class is made."""

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
    """The root of every declared struct and message."""

    __fields__: ClassVar[tuple[Field, ...]] = ()
    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable

    def __init__(self, **values: Any) -> None:
        """Runs once for each class: the first instance pays for compiling the class's own constructor."""
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


class Request(Message):
    """The body of a request."""


class Response(Message):
    """The body of a response."""


class Data(Message):
    """A message that travels inside another: a header, a member's subscription, a control record's value."""


class RecordKey(Message):
    """The key of a record in a coordinator's topic, after the int16 that says which; that number is `API_KEY`."""


class RecordValue(Message):
    """The value that belongs to the key of the same `API_KEY`, after the int16 that says its version."""


_MISSING = object()


def compile_initializer(cls: type[Struct]) -> Callable[..., None]:
    """A keyword-only constructor for the class, as a person would write it."""
    parameters, body, names = _constructor_source(cls)
    source = f"def __init__(self, {parameters}):\n{body}"
    exec(compile(source, f"<{cls.__name__}.__init__>", "exec"), names)
    return names["__init__"]  # type: ignore[no-any-return]


Parameters = ParamSpec("Parameters")
Built = TypeVar("Built")


def maker(cls: Callable[Parameters, Built]) -> Callable[Parameters, Built]:
    """Makes a plain function that builds an instance as `cls(...)` does, in little more than half the time: calling a class with keywords
    makes a tuple and a dictionary, calling a function does not. The hottest handlers make theirs once, at import."""
    assert isinstance(cls, StructType)
    parameters, body, names = _constructor_source(cls)
    names["new"] = object.__new__
    names["cls"] = cls
    source = f"def make({parameters}):\n    self = new(cls)\n{body}\n    return self"
    exec(compile(source, f"<maker of {cls.__name__}>", "exec"), names)
    return names["make"]  # type: ignore[no-any-return]


def _constructor_source(cls: StructType) -> tuple[str, str, dict[str, Any]]:
    """The parameters of a constructor, the assignments to `self`, and the values they name."""
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
    """The value of an absent field. Never call it for a list: those must be fresh."""
    return frozen_default(field.struct) if isinstance(field.default, StructType) else field.default


_frozen_defaults: dict[type[Struct], Struct] = {}


def frozen_default(cls: type[Struct]) -> Struct:
    """The one shared instance of `cls` with every field at its default, which refuses assignment."""
    default = _frozen_defaults.get(cls)
    if default is None:
        default = _frozen_defaults[cls] = cls()
        # A subclass without slots of its own has the same layout, so the class of a finished instance may be exchanged.
        refusals = {"__setattr__": _refuse_assignment, "__reduce__": lambda _: (frozen_default, (cls,))}
        default.__class__ = StructType(cls.__name__, (cls,), refusals)  # type: ignore[assignment]
    return default


def _refuse_assignment(struct: Struct, name: str, _value: object) -> NoReturn:
    raise AttributeError(f"this {type(struct).__name__} is a shared default: put a new one in its place instead of setting {name}")


def is_flexible(cls: type[Message], version: int) -> bool:
    return cls.FLEXIBLE_SINCE is not None and version >= cls.FLEXIBLE_SINCE
