"""Compiles the declaration of a message into a decoder for one version: a Python function, whose source is generated and compiled.

Neighbouring fixed-width fields, and the length of the field after them, are read by one precompiled `struct.Struct`. Nested structs and
arrays are inlined, so the function makes no call per field. Two rules keep the checks cheap:

- Offsets only grow, and a slice beyond the end is only short. Thus one comparison of the last offset with the buffer's length finds every
  string or blob that says more bytes than there are. Counts of arrays and sizes of tags are compared when they are read. Reads of single
  bytes and fixed widths beyond the end raise IndexError or struct.error.
- An element of an array takes at least one byte, so a message cannot have more objects than bytes. For small messages this limit is
  sufficient. Messages of more than `OBJECTS_MAX` bytes are decoded by a second form of the function, which counts the elements of arrays as
  objects (four numbers as one) and refuses more than `OBJECTS_MAX`.

Messages of a usual shape are read without loops (`usual_shapes.py`).

Two more forms are for requests that may be too large for one step of the event loop. One raises `ManyObjects` for more objects than a small
limit. The other is a generator: it yields after each `ELEMENTS_PER_STEP` elements of all arrays together, and after each
`NUMBERS_PER_STEP` numbers of one array. It returns what the other forms return.

For any bytes, a decoder returns a message or raises `WireError` (or `ManyObjects`). Messages without `records` are decoded from `bytes`,
which are faster to index than a memoryview. Messages with `records`, and messages that are decoded in steps, are decoded from a memoryview,
and each `records` is a slice of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, NoReturn

from ottla.base.errors import WireError
from ottla.wire.primitives import (
    check_tag,
    read_long_string_length,
    read_long_tag_count,
    read_long_uvarint,
    read_skipped_tags,
    read_uvarint,
)
from ottla.wire.schema import FIXED, Field, Message, Struct, is_flexible, shared_default
from ottla.wire.source import GeneratedSource
from ottla.wire.usual_shapes import UsualShape

OBJECTS_MAX = 1_000_000
REQUEST_OBJECTS_MAX = 500_000
"""Maximum number of objects in one request that is decoded in steps: 60 to 100 MiB of memory after decoding."""
ELEMENTS_PER_STEP = 512
NUMBERS_PER_STEP = 1 << 14
NUMBERS_PER_OBJECT_BITS = 2

CACHED_COUNTS_MAX = 64


class ManyObjects(Exception):
    """A message has more objects than may be decoded in one step."""


def compile_decoder(cls: type[Message], version: int, *, objects_max: int | None = None) -> Callable[[Any, int], tuple[Any, int]]:
    """Returns the decoder of `cls` at `version`: (buffer, offset) -> (message, offset after it). It raises `WireError` for more than
    `objects_max` objects; None means `OBJECTS_MAX`.
    """
    return _DecoderSource(cls, version, objects_max=objects_max).compile()


def compile_bounded_decoder(cls: type[Message], version: int, objects_max: int) -> Callable[[Any, int], tuple[Any, int]]:
    """As `compile_decoder`, but the decoder raises `ManyObjects` for more than `objects_max` objects."""
    return _DecoderSource(cls, version, objects_max=objects_max, refuse_more=give_up).compile()


def compile_step_decoder(cls: type[Message], version: int) -> Callable[[Any, int], Generator[None, None, tuple[Any, int]]]:
    """As `compile_decoder`, but the decoder is a generator, and its limit is `REQUEST_OBJECTS_MAX`."""
    source = _DecoderSource(cls, version, objects_max=REQUEST_OBJECTS_MAX, is_stepwise=True)
    return source.compile()  # type: ignore[return-value]


def give_up(name: str, count: int) -> NoReturn:
    raise ManyObjects


def refuse_null(name: str) -> NoReturn:
    raise WireError(f"{name} may not be null")


def refuse_length(name: str, length: int) -> NoReturn:
    raise WireError(f"{name} has length {length}; the only negative length is -1, for null")


def refuse_count(name: str, count: int) -> NoReturn:
    raise WireError(f"{name} claims {count} elements, which do not fit into the rest of the frame")


def refuse_objects(name: str, count: int) -> NoReturn:
    raise WireError(f"{name} claims {count} elements; with them the message has more objects than one message may have")


def refuse_tag_size(name: str) -> NoReturn:
    raise WireError(f"the tagged field {name} does not fill the bytes it claims")


def refuse_bytes(name: str, error: Exception) -> NoReturn:
    raise WireError(f"not a {name}: {error}") from None


def refuse_end(name: str) -> NoReturn:
    raise WireError(f"the frame ends inside a {name}")


def holds_records(cls: type[Struct], version: int) -> bool:
    for field in cls.__fields__:
        if field.is_in(version):
            of = field.of
            if field.kind == "records" or (isinstance(of, type) and holds_records(of, version)):
                return True
    return False


class ArrayReaders(dict[int, Callable[[Any, int], tuple[Any, ...]]]):
    """Functions that read an array of fixed-width values, by the number of values. Only functions for short arrays are kept, because the
    sender of the bytes chooses the number.
    """

    def __init__(self, letter: str) -> None:
        super().__init__()
        self.letter = letter

    def __missing__(self, count: int) -> Callable[[Any, int], tuple[Any, ...]]:
        read = struct.Struct(f">{count}{self.letter}").unpack_from
        if count <= CACHED_COUNTS_MAX:
            self[count] = read
        return read


_array_readers = {letter: ArrayReaders(letter) for letter in FIXED.values()}


_NAMES: dict[str, Any] = {
    "new": object.__new__,
    "long": read_long_uvarint,
    "long_string": read_long_string_length,
    "uvarint": read_uvarint,
    "skip_tags": read_skipped_tags,
    "tag_count": read_long_tag_count,
    "check_tag": check_tag,
    "refuse_null": refuse_null,
    "refuse_length": refuse_length,
    "refuse_count": refuse_count,
    "refuse_tag_size": refuse_tag_size,
    "refuse_bytes": refuse_bytes,
    "refuse_end": refuse_end,
    "BadBytes": (struct.error, IndexError, UnicodeDecodeError),
}


class _DecoderSource(GeneratedSource):
    """Generates the source of one decoder. Its variables are numbered, so that the variables of inlined structs do not clash."""

    def __init__(
        self,
        cls: type[Message],
        version: int,
        *,
        objects_max: int | None,
        is_stepwise: bool = False,
        refuse_more: Callable[[str, int], NoReturn] = refuse_objects,
    ) -> None:
        super().__init__({**_NAMES, "refuse_more": refuse_more})
        self.cls = cls
        self.version = version
        self.is_flexible = is_flexible(cls, version)
        self.objects_max = objects_max
        self.is_stepwise = is_stepwise
        self.is_view = is_stepwise or holds_records(cls, version)  # a large request is not copied into `bytes`
        self.pending: list[tuple[str, str]] = []  # (target, struct letter) of the fixed-width values to be read next

    def compile(self) -> Callable[[Any, int], tuple[Any, int]]:
        name = self.cls.__name__
        self.emit("def decode(buf, pos):")
        self.depth += 1
        kind = "memoryview" if self.is_view else "bytes"
        self.emit(f"if type(buf) is not {kind}: buf = {kind}(buf)")
        self.emit("size = len(buf)")
        if self.objects_max is not None:
            self.emit(f"budget = {self.objects_max}")
        else:
            self.names["decode_counted"] = _counted(self.cls, self.version)
            self.emit(f"if size - pos > {OBJECTS_MAX}: return decode_counted(buf, pos)")
            for example in self.cls.usual(self.version):
                UsualShape(self, example, self.version, is_view=self.is_view).emit()
        if self.is_stepwise:
            self.emit("step = 0")
        self.emit("try:")
        self.depth += 1
        self.struct(self.cls, "message")
        self.depth -= 1
        self.emit("except BadBytes as error:")
        self.emit(f"    refuse_bytes('{name}', error)")
        self.emit(f"if pos > size: refuse_end('{name}')")
        if self.is_stepwise:
            self.emit("yield")
        self.emit("return message, pos")
        return self.compile_function("decode", f"<decoder of {name} {self.version}>", [])

    def flush(self) -> None:
        """Emits the read of the pending fixed-width values."""
        if not self.pending:
            return
        targets = ", ".join(target for target, _ in self.pending)
        letters = "".join(letter for _, letter in self.pending)
        self.pending = []
        if letters == "B":
            self.emit(f"{targets} = buf[pos]; pos += 1")
            return
        form = struct.Struct(">" + letters)
        if len(form.unpack(bytes(form.size))) == 1:
            targets += ","
        unpack = self.constant("unpack", form.unpack_from)
        self.emit(f"{targets} = {unpack}(buf, pos); pos += {form.size}")

    # Structs and their tags

    def struct(self, cls: type[Struct], target: str) -> None:
        """Emits the read of a struct into a new object, whose variable is `target`."""
        version = self.version
        self.emit(f"{target} = new({self.constant(cls.__name__, cls)})")
        tagged = []
        for field in cls.__fields__:
            place = f"{target}.{field.name}"
            if field.is_tagged(version):
                tagged.append(field)
            elif field.is_in(version):
                self.field(field, place, self.is_flexible and not field.classic)
                continue
            if field.default == []:
                self.emit(f"{place} = []")
            else:
                self.emit(f"{place} = {self.default(field)}")
        if self.is_flexible:
            self.tags(tagged, target)
        self.flush()

    def default(self, field: Field) -> str:
        value = shared_default(field)
        return repr(value) if value is None or type(value) in (int, bool, str) else self.constant("default", value)

    def tags(self, tagged: list[Field], target: str) -> None:
        """Emits the read of a tag section. The tagged fields of `target` have their defaults before it."""
        if not tagged and not self.pending:
            self.emit("if buf[pos]: pos = skip_tags(buf, pos)")
            self.emit("else: pos += 1")
            return
        count = self.fresh("count")
        self.pending.append((count, "B"))
        self.flush()
        self.emit(f"if {count}:")
        self.depth += 1
        if tagged:
            self.known_tags(tagged, target, count)
        else:
            self.emit("pos = skip_tags(buf, pos - 1)")
        self.depth -= 1

    def known_tags(self, tagged: list[Field], target: str, count: str) -> None:
        tag, last, end = self.fresh("tag"), self.fresh("last"), self.fresh("end")
        self.emit(f"if {count} > 127: {count}, pos = tag_count(buf, pos - 1)")
        self.emit(f"{last} = -1")
        self.emit(f"while {count}:")
        self.depth += 1
        self.emit(f"{count} -= 1")
        # Tags and their sizes usually take one byte each, so this case is inlined.
        self.emit(f"{tag} = buf[pos]; {end} = buf[pos + 1]")
        self.emit(f"if {tag} < 128 and {end} < 128: pos += 2")
        self.emit(f"else: {tag}, pos = uvarint(buf, pos); {end}, pos = uvarint(buf, pos)")
        self.emit(f"if {tag} <= {last} or {end} > size - pos: check_tag({tag}, {last}, {end}, size - pos)")
        self.emit(f"{last} = {tag}; {end} += pos")
        branch = "if"
        for field in tagged:
            self.emit(f"{branch} {tag} == {field.tag}:")
            self.depth += 1
            self.field(field, f"{target}.{field.name}", True)
            self.flush()
            self.emit(f"if pos != {end}: refuse_tag_size('{field.name}')")
            self.depth -= 1
            branch = "elif"
        self.emit(f"else: pos = {end}")
        self.depth -= 1

    # Fields

    def field(self, field: Field, place: str, is_compact: bool) -> None:
        if field.kind in FIXED:
            self.pending.append((place, FIXED[field.kind]))
        elif field.kind == "nested":
            self.nested(field, place)
        elif field.kind == "array":
            self.array(field, place, is_compact)
        else:
            self.blob(field, place, is_compact)

    def nested(self, field: Field, place: str) -> None:
        target = self.fresh("struct")
        if not field.is_nullable(self.version):
            self.struct(field.struct, target)
            self.emit(f"{place} = {target}")
            return
        presence = self.fresh("presence")
        self.pending.append((presence, "b"))
        self.flush()
        # A null struct is -1 in an ordinary field and 0 in a tagged field, where Kafka writes its presence as an unsigned varint.
        self.emit(f"if {presence} {'<=' if field.is_tagged(self.version) else '<'} 0: {place} = None")
        self.emit("else:")
        self.depth += 1
        self.struct(field.struct, target)
        self.emit(f"{place} = {target}")
        self.depth -= 1

    def length(self, field: Field, is_compact: bool) -> str:
        """Emits the read of the length of a blob or the count of an array. Returns the variable's name. In compact form
        its value is the length plus one, and 0 for null.
        """
        length = self.fresh("length")
        if is_compact:
            self.pending.append((length, "B"))
            self.flush()
            if field.kind == "records":
                self.records_length(length)
            else:
                long = "long_string" if field.kind == "string" else "long"
                self.emit(f"if {length} > 127: {length}, pos = {long}(buf, pos - 1)")
        else:
            self.pending.append((length, "h" if field.kind == "string" else "i"))
            self.flush()
        return length

    def records_length(self, length: str) -> None:
        """Emits the read of the length of records. It usually takes two bytes, so this case is inlined."""
        self.emit(f"if {length} > 127:")
        self.emit("    high = buf[pos]")
        self.emit(f"    if high < 128: {length} += (high << 7) - 128; pos += 1")
        self.emit(f"    else: {length}, pos = long(buf, pos - 1)")

    def null_branch(self, field: Field, place: str, length: str, is_compact: bool) -> None:
        """Emits the branch for a null blob or array, and the line `else:`. The caller emits the body of `else`."""
        null = "not " + length if is_compact else length + " < 0"
        if field.is_nullable(self.version):
            self.emit(f"if {null}:")
            if not is_compact:
                self.emit(f"    if {length} != -1: refuse_length('{field.name}', {length})")
            self.emit(f"    {place} = None")
        else:
            self.emit(f"if {null}: refuse_null('{field.name}')")
        self.emit("else:")

    def blob(self, field: Field, place: str, is_compact: bool) -> None:
        length = self.length(field, is_compact)
        self.null_branch(field, place, length, is_compact)
        self.emit(f"    {place} = {self.blob_slice(field, length, is_compact)}")

    def blob_slice(self, field: Field, length: str, is_compact: bool) -> str:
        piece = f"buf[pos:(pos := pos + {length}{' - 1' if is_compact else ''})]"
        if field.kind == "string":
            return f"str({piece}, 'utf-8')" if self.is_view else f"{piece}.decode()"
        if field.kind == "octets" and self.is_view:
            return f"bytes({piece})"
        return piece

    def array(self, field: Field, place: str, is_compact: bool) -> None:
        count = self.length(field, is_compact)
        self.null_branch(field, place, count, is_compact)
        self.depth += 1
        if is_compact:
            self.emit(f"{count} -= 1")
        element = field.element
        if element.kind in FIXED:
            self.fixed_elements(field.name, FIXED[element.kind], place, count)
        else:
            self.elements(field.name, element, place, count, is_compact)
        self.depth -= 1

    def fixed_elements(self, name: str, letter: str, place: str, count: str) -> None:
        width = struct.calcsize(">" + letter)
        self.emit(f"if {count} * {width} > size - pos: refuse_count('{name}', {count})")
        self.charge(name, count if width == 16 else f"({count} >> {NUMBERS_PER_OBJECT_BITS})", count)
        if self.is_stepwise and width != 16:
            self.numbers_in_steps(letter, place, count, width)
            return
        if width == 16:
            self.emit(f"{place} = [bytes(buf[at:at + 16]) for at in range(pos, pos + {count} * 16, 16)]")
        else:
            readers = self.constant("readers", _array_readers[letter])
            self.emit(f"{place} = list({readers}[{count}](buf, pos)) if {count} else []")
        self.emit(f"pos += {count} * {width}")

    def numbers_in_steps(self, letter: str, place: str, count: str, width: int) -> None:
        readers, numbers, some = self.constant("readers", _array_readers[letter]), self.fresh("numbers"), self.fresh("some")
        self.emit(f"{place} = {numbers} = []")
        self.emit(f"while {count}:")
        self.emit(f"    {some} = {count} if {count} < {NUMBERS_PER_STEP} else {NUMBERS_PER_STEP}")
        self.emit(f"    {numbers} += {readers}[{some}](buf, pos); pos += {some} * {width}; {count} -= {some}")
        self.emit(f"    if {count}: yield")

    def charge(self, name: str, cost: str, count: str) -> None:
        """Emits the check that the array's elements are within the limit of objects, if there is one."""
        if self.objects_max is not None:
            self.emit(f"budget -= {cost}")
            self.emit(f"if budget < 0: refuse_more('{name}', {count})")

    def elements(self, name: str, element: Field, place: str, count: str, is_compact: bool) -> None:
        items = self.fresh("items")
        self.emit(f"if {count} > size - pos: refuse_count('{name}', {count})")
        self.charge(name, count, count)
        self.emit(f"{place} = {items} = []")
        self.emit(f"while {count}:")
        self.depth += 1
        self.emit(f"{count} -= 1")
        if self.is_stepwise:
            self.emit(f"step += 1\n{'    ' * self.depth}if not step % {ELEMENTS_PER_STEP}: yield")
        if element.kind == "nested":
            target = self.fresh("struct")
            self.struct(element.struct, target)
            self.emit(f"{items}.append({target})")
        else:
            length = self.length(element, is_compact)
            empty = "not " + length if is_compact else length + " < 0"
            self.emit(f"if {empty}: refuse_null('an element of {name}')")
            self.emit(f"{items}.append({self.blob_slice(element, length, is_compact)})")
        self.depth -= 1


def _counted(cls: type[Message], version: int) -> Callable[[Any, int], tuple[Any, int]]:
    """Returns the form of a decoder that counts objects. It is compiled for the first large message."""
    compiled: list[Callable[[Any, int], tuple[Any, int]]] = []

    def decode(buffer: Any, offset: int) -> tuple[Any, int]:
        if not compiled:
            compiled.append(compile_decoder(cls, version, objects_max=OBJECTS_MAX))
        return compiled[0](buffer, offset)

    return decode
