"""Compiles the declaration of a message into a writer for one version: a Python function, whose source is generated and compiled.

The writer appends pieces to a list that its caller joins once. Neighbouring fixed-width fields, and arrays of fixed width among them, are
packed by one call. The `pack` functions, and the bytes of short strings and small counts, are kept in dictionaries (`encoded_values.py`).

A field that the version does not have raises ApiError(UNSUPPORTED_VERSION) if its value is not the default, unless the field is ignorable.
A tagged field at its default is not written. A string that is too long raises ApiError(INVALID_REQUEST). Any other value of the wrong type
or range is a bug of the caller, and raises whatever Python raises.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ottla.base.errors import ApiError, ErrorCode
from ottla.wire.encoded_values import (
    CLASSIC_NULLABLE_STRINGS,
    CLASSIC_STRINGS,
    COMPACT_COUNTS,
    COMPACT_NULLABLE_STRINGS,
    COMPACT_STRINGS,
    Shapes,
)
from ottla.wire.primitives import uvarint
from ottla.wire.schema import FIXED, Field, Message, Struct, StructType, is_flexible, shared_default
from ottla.wire.source import GeneratedSource

ELEMENTS_PER_STEP = 256

# Smaller records are copied into the joined piece, which is cheaper than a piece of their own.
SEPARATE_RECORDS_BYTES = 32 * 1024


def compile_writer(cls: type[Message], version: int) -> Callable[[Any, list[Any]], None]:
    """Returns the writer of `cls` at `version`: a function (message, parts) that appends the pieces of the encoding to `parts`."""
    return _WriterSource(cls, version, is_split=False).compile()


def compile_split_writer(cls: type[Message], version: int) -> Callable[[Any], list[Any]]:
    """Returns the function of `codec.encoder_parts`: message -> a list of pieces. `records` that are a piece of their own are not joined
    with the bytes around them."""
    return _WriterSource(cls, version, is_split=True).compile()


def compile_step_writer(cls: type[Message], version: int) -> Callable[[Any, list[Any], list[Any]], Iterator[None]]:
    """Returns the function of `codec.step_writer`, a generator that yields after each `ELEMENTS_PER_STEP` elements of arrays. Arrays of
    fixed-width values, and arrays in tagged fields, are written in one step."""
    return _WriterSource(cls, version, is_split=True, is_stepwise=True).compile()


def compile_element_writer(cls: type[Message], version: int, name: str) -> Callable[[Any, list[Any]], Iterator[None]]:
    """Returns the function of `codec.element_writer`."""
    return _WriterSource(cls, version, is_split=False, is_stepwise=True).compile_elements(name)


def compile_spliced_writer(cls: type[Message], version: int, name: str) -> Callable[[Any, int, list[Any], list[Any]], None]:
    """Returns the function of `codec.spliced_writer`."""
    return _WriterSource(cls, version, is_split=False, spliced=name).compile()


def refuse_value(message: str, name: str, version: int) -> NoReturn:
    raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{message} version {version} has no place for this {name}")


_NAMES: dict[str, Any] = {
    "compact_strings": COMPACT_STRINGS,
    "compact_nullable_strings": COMPACT_NULLABLE_STRINGS,
    "classic_strings": CLASSIC_STRINGS,
    "classic_nullable_strings": CLASSIC_NULLABLE_STRINGS,
    "compact_counts": COMPACT_COUNTS,
    "uvarint": uvarint,
    "join": b"".join,
    "refuse_value": refuse_value,
    "BYTES_LIKE": frozenset((bytes, bytearray, memoryview)),
}


class _WriterSource(GeneratedSource):
    """Generates the source of one writer.

    `row` has the expressions of pieces that one statement will append. `pending` has fixed-width values that one `pack` call will add to
    `row`.
    """

    def __init__(self, cls: type[Message], version: int, *, is_split: bool, is_stepwise: bool = False, spliced: str = "") -> None:
        super().__init__(dict(_NAMES))
        self.cls = cls
        self.is_split = is_split
        self.spliced = spliced
        self.is_stepwise = is_stepwise
        self.is_outside_of_tags = True  # False while the function of a tag section is generated
        self.version = version
        self.is_flexible = is_flexible(cls, version)
        self.row: list[str] = []
        self.pending: list[tuple[str | tuple[str], str]] = []  # (letter, value); (letter,) means an array
        self.functions: list[str] = []  # the source of the functions that encode tag sections

    def compile(self) -> Callable[..., Any]:
        if self.is_stepwise:
            arguments, begin = "message, parts, out", "step = 0"
        elif self.is_split:
            arguments, begin = "message", "parts = []; out = []"
        else:
            arguments, begin = "message, count, written, parts" if self.spliced else "message, parts", ""
        self.emit(f"def write({arguments}):")
        self.depth += 1
        if begin:
            self.emit(begin)
        self.struct(self.cls, "message")
        self.flush()
        if self.is_stepwise:
            self.emit("yield")
        elif self.is_split:
            self.emit("if parts: out.append(join(parts))")
            self.emit("return out")
        else:
            self.emit("return None")
        return self.compiled()

    def compile_elements(self, name: str) -> Callable[..., Iterator[None]]:
        (field,) = [field for field in self.cls.__fields__ if field.name == name]
        self.emit("def write(elements, parts):")
        self.depth += 1
        self.emit("step = 0")
        self.loop(field.element, "elements", self.is_flexible and not field.classic)
        self.emit("yield")
        return self.compiled()

    def compiled(self) -> Callable[..., Any]:
        return self.compile_function("write", f"<encoder of {self.cls.__name__} {self.version}>", self.functions)

    def end_pack(self) -> None:
        """Adds the expression that packs the pending fixed-width values to the row."""
        if not self.pending:
            return
        pending, self.pending = self.pending, []
        arrays = [value for letter, value in pending if isinstance(letter, tuple)]
        if not arrays and all(letter == "x" for letter, _ in pending):
            self.row.append(repr(bytes(len(pending))))
            return
        values = []
        shape = []
        for letter, value in pending:
            if isinstance(letter, tuple):
                items, count = self.fresh("items"), self.fresh("count")
                shape.append(f"({count} := len({items} := {value}))")
                values.append(f"{count}{' + 1' if self.is_flexible else ''}, *{items}")
            elif letter != "x":
                values.append(value)
        if arrays:
            shapes = self.constant("shapes", Shapes([letter for letter, _ in pending], is_compact=self.is_flexible))
            pack = f"{shapes}[{', '.join(shape)}]"
        else:
            pack = self.constant("pack", struct.Struct(">" + "".join(str(letter) for letter, _ in pending)).pack)
        self.row.append(f"{pack}({', '.join(values)})")

    def flush(self) -> None:
        """Emits the statement that appends the pieces of the row."""
        self.end_pack()
        if len(self.row) == 1:
            self.emit(f"parts.append({self.row[0]})")
        elif self.row:
            self.emit(f"parts += ({', '.join(self.row)})")
        self.row = []

    def piece(self, expression: str) -> None:
        self.end_pack()
        self.row.append(expression)

    # Structs and their tags

    def struct(self, cls: type[Struct], source: str) -> None:
        version = self.version
        tagged = []
        for field in cls.__fields__:
            value = f"{source}.{field.name}"
            if field.is_tagged(version):
                tagged.append(field)
            elif field.is_in(version):
                self.field(field, value, self.is_flexible and not field.classic)
            elif not field.ignorable:
                self.emit(f"if {self.differs(field, value)}: refuse_value('{cls.__name__}', '{field.name}', {version})")
        if not self.is_flexible:
            return
        if tagged:
            write_tags = self.tags_function(cls, tagged)
            is_set = " or ".join(self.is_set(field, f"{source}.{field.name}") for field in tagged)
            self.piece(f"{write_tags}({source}) if {is_set} else b'\\0'")
        else:
            self.pending.append(("x", ""))

    def differs(self, field: Field, value: str) -> str:
        """Returns an expression that is true if the value differs from the default."""
        if not isinstance(field.default, StructType):
            return self.is_set(field, value)
        differences = [self.differs(inner, f"{value}.{inner.name}") for inner in field.struct.__fields__]
        if field.nullable_since is not None:
            differences.insert(0, f"{value} is None")
        return f"{self.is_set(field, value)} and ({' or '.join(differences)})"

    def is_set(self, field: Field, value: str) -> str:
        """Returns a cheaper expression than `differs`. For a struct it is true unless the value is the shared default itself."""
        if isinstance(field.default, StructType):
            return f"{value} is not {self.constant('default', shared_default(field))}"
        if field.default == [] and field.nullable_since is None:
            return value
        if field.default is None:
            return f"{value} is not None"
        return f"{value} != {field.default!r}"

    def tags_function(self, cls: type[Struct], tagged: list[Field]) -> str:
        """Generates a function struct -> bytes of its tag section, for the rare section that is not empty. Returns the function's name."""
        name = self.fresh("write_tags")
        outer = self.lines, self.depth, self.row, self.pending
        self.is_outside_of_tags = False
        self.lines, self.depth, self.row, self.pending = [], 0, [], []
        self.emit(f"def {name}(struct):")
        self.depth = 1
        self.emit("count = 0; section = []")
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            value = f"struct.{field.name}"
            self.emit(f"if {self.differs(field, value)}:")
            self.depth = 2
            self.emit("count += 1")
            self.tagged_value(field, value)
            self.depth = 1
        self.emit("return compact_counts[count - 1] + join(section)")
        self.functions += self.lines
        self.lines, self.depth, self.row, self.pending = outer
        self.is_outside_of_tags = True
        return name

    def tagged_value(self, field: Field, value: str) -> None:
        """Emits the code that adds tag, size and value of a tagged field to `section`: one `pack` call if the value has a fixed width."""
        tag = uvarint(field.tag or 0)
        fixed = self.fixed_values(field, value)
        if fixed:
            form = "".join(letter for letter, _ in fixed)
            start = tag + uvarint(struct.calcsize(f">{form}"))
            pack = self.constant("pack", struct.Struct(f">{len(start)}s{form}").pack)
            values = ", ".join(value for letter, value in fixed if letter != "x")
            self.emit(f"section.append({pack}({start!r}, {values}))")
            return
        self.emit("parts = []")
        self.field(field, value, True)
        self.flush()
        self.emit("body = join(parts); size = len(body)")
        self.emit(f"section += ({tag!r}, compact_counts[size - 1], body)")

    def fixed_values(self, field: Field, value: str) -> list[tuple[str, str]]:
        """Returns (letter, value) of all values of a field, or an empty list if one of them has no fixed width."""
        if field.kind in FIXED:
            return [(FIXED[field.kind], value)]
        if field.kind != "nested" or field.is_nullable(self.version):
            return []
        inner = field.struct.__fields__
        if not all(one.kind in FIXED and one.is_in(self.version) and one.tag is None for one in inner):
            return []
        return [*((FIXED[one.kind], f"{value}.{one.name}") for one in inner), ("x", "")]

    # Fields

    def field(self, field: Field, value: str, is_compact: bool) -> None:
        if field.kind in FIXED:
            self.pending.append((FIXED[field.kind], value))
        elif field.kind == "string":
            self.piece(f"{self.strings(field, is_compact)}[{value}]")
        elif field.kind in ("octets", "records"):
            self.blob(field, value, is_compact)
        elif field.kind == "nested":
            self.nested(field, value)
        elif field.name == self.spliced and value == f"message.{field.name}":
            self.piece("compact_counts[count]" if is_compact else "count.to_bytes(4, 'big')")
            self.flush()
            self.emit("parts += written")
        else:
            self.array(field, value, is_compact)

    def strings(self, field: Field, is_compact: bool) -> str:
        nullable = "nullable_" if field.is_nullable(self.version) else ""
        return f"{'compact' if is_compact else 'classic'}_{nullable}strings"

    def blob(self, field: Field, value: str, is_compact: bool) -> None:
        blob, length = self.fresh("blob"), self.fresh("length")
        self.emit(f"{blob} = {value}")
        if field.is_nullable(self.version):
            self.emit(f"if {blob} is None: {blob} = b''; {length} = -1")
            self.emit(f"else: {length} = len({blob})")
        else:
            self.refuse_null(field, blob)
            self.emit(f"{length} = len({blob})")
        if is_compact:
            self.piece(f"compact_counts[{length}]")
        else:
            self.pending.append(("i", length))
        if field.kind == "records" and self.is_split:
            self.split(blob, length)
        else:
            self.piece(blob)

    def split(self, blob: str, length: str) -> None:
        """Emits code that makes large records, and records that are not bytes-like, a piece of their own."""
        self.flush()
        self.emit(f"if {length} < {SEPARATE_RECORDS_BYTES} and type({blob}) in BYTES_LIKE: parts.append({blob})")
        self.emit("else:")
        self.emit(f"    out += (join(parts), {blob})")
        self.emit("    parts.clear()")

    def refuse_null(self, field: Field, value: str) -> None:
        """Emits a check that raises ApiError(UNSUPPORTED_VERSION) for a null that only another version of the field allows. If no version
        allows null, a null is a bug of the caller and is not checked.
        """
        if field.nullable_since is not None:
            self.emit(f"if {value} is None: refuse_value('{self.cls.__name__}', 'null {field.name}', {self.version})")

    def nested(self, field: Field, value: str) -> None:
        source = self.fresh("struct")
        self.emit(f"{source} = {value}")
        if not field.is_nullable(self.version):
            self.struct(field.struct, source)
            return
        self.flush()
        null = b"\0" if field.is_tagged(self.version) else b"\xff"  # the presence: a tagged field has a varint, others an int8
        self.emit(f"if {source} is None: parts.append({null!r})")
        self.emit("else:")
        self.depth += 1
        self.row.append("b'\\x01'")
        self.struct(field.struct, source)
        self.flush()
        self.depth -= 1

    def array(self, field: Field, value: str, is_compact: bool) -> None:
        element = field.element
        if not field.is_nullable(self.version):
            if field.nullable_since is None and element.kind in FIXED:
                self.pending.append(((FIXED[element.kind],), value))
                return
            items = self.fresh("items")
            self.emit(f"{items} = {value}")
            self.refuse_null(field, items)
            self.elements(element, items, is_compact)
            return
        items = self.fresh("items")
        self.emit(f"{items} = {value}")
        null = b"\0" if is_compact else b"\xff\xff\xff\xff"
        if element.kind not in FIXED:
            count = f"compact_counts[len({items})]" if is_compact else f"len({items}).to_bytes(4, 'big')"
            self.piece(f"{null!r} if {items} is None else {count}")
            self.loop(element, f"{items} or ()", is_compact)
            return
        self.flush()
        self.emit(f"if {items} is None: parts.append({null!r})")
        self.emit("else:")
        self.depth += 1
        self.elements(element, items, is_compact)
        self.flush()
        self.depth -= 1

    def elements(self, element: Field, items: str, is_compact: bool) -> None:
        if element.kind in FIXED:
            self.pending.append(((FIXED[element.kind],), items))
            return
        if is_compact:
            self.piece(f"compact_counts[len({items})]")
        else:
            self.pending.append(("i", f"len({items})"))
        self.loop(element, items, is_compact)

    def loop(self, element: Field, items: str, is_compact: bool) -> None:
        self.flush()
        item = self.fresh("item")
        self.emit(f"for {item} in {items}:")
        self.depth += 1
        if self.is_stepwise and self.is_outside_of_tags:
            self.emit("step += 1")
            self.emit(f"if not step % {ELEMENTS_PER_STEP}: yield")
        if element.kind == "nested":
            self.struct(element.struct, item)
        else:
            self.field(element, item, is_compact)
        self.flush()
        self.depth -= 1
