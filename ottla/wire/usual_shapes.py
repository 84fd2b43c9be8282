"""Reads a message of a usual shape without loops, and nearly all of it by one `struct.Struct`.

Two messages have the same shape if they differ only in values of fixed width, in texts and in records: counts and tags are the same bytes.
So the values between two texts are unpacked at once, and the bytes of the shape are compared. A message class names examples of its usual
shapes (`Message.usual`), and `decoding.py` puts this read before the general one. Messages with another byte in the shape or with a long
text are left to the general read, and so are malformed messages. A Fetch of one partition takes a third of the instructions of the general
read.
"""

from __future__ import annotations

import struct
from itertools import groupby
from typing import Any

from ottla.wire.primitives import uvarint
from ottla.wire.schema import FIXED, Field, Message, Struct, is_flexible, shared_default
from ottla.wire.source import GeneratedSource

Piece = tuple[str, str | int | Field]
"""A value to unpack: its target and struct letter. A text or records: the target and the field. A byte of the shape: an empty string and
the byte."""


class UsualShape:
    """Generates the read of messages with the shape of `example`."""

    def __init__(self, source: GeneratedSource, example: Message, version: int, *, is_view: bool) -> None:
        """`is_view`: the buffer is a memoryview."""
        assert is_flexible(type(example), version), "only flexible versions have usual shapes"
        self._source = source
        self._version = version
        self._is_view = is_view
        self._makes: list[str] = []
        self._sets: list[str] = []
        self._pieces = self._struct(example, "message")

    def emit(self) -> None:
        source, before = self._source, self._source.depth
        blobs = [piece for piece in self._pieces if isinstance(piece[1], Field)]
        run: list[Piece] = []
        if blobs:
            source.emit("at = pos")
            source.emit("try:")
        else:
            source.emit(f"if size - pos == {_size(self._pieces)}:")
            source.emit("    at = pos")
        source.depth += 1
        for line in self._makes:
            source.emit(line)
        for piece in self._pieces:
            if isinstance(piece[1], Field):
                self._blob(run, piece[0], piece[1])
                run = []
            else:
                run.append(piece)
        self._run(run)
        if blobs:
            source.emit("if at == size:")
            source.depth += 1
        for line in self._sets:
            source.emit(line)
        source.emit("return message, at")
        source.depth = before
        if blobs:
            source.emit("except BadBytes: pass")

    def _run(self, run: list[Piece]) -> None:
        """Emits the read of neighbouring values and bytes of the shape, and the condition that the bytes are equal."""
        source = self._source
        targets, letters, checks, shape = [], [], [], []
        for is_shape, group in groupby(run, key=lambda piece: not piece[0]):
            pieces = list(group)
            if is_shape:
                checks.append(source.fresh("shape"))
                shape.append(repr(bytes(int(piece[1]) for piece in pieces)))  # type: ignore[arg-type]
                targets.append(checks[-1])
                letters.append(f"{len(pieces)}s")
            else:
                targets += [target for target, _ in pieces]
                letters += [str(letter) for _, letter in pieces]
        form = struct.Struct(">" + "".join(letters))
        source.emit(f"{', '.join(targets)}, = {source.constant('unpack', form.unpack_from)}(buf, at); at += {form.size}")
        if checks:
            source.emit(f"if {' and '.join(f'{check} == {value}' for check, value in zip(checks, shape, strict=True))}:")
            source.depth += 1

    def _blob(self, run: list[Piece], place: str, field: Field) -> None:
        """Emits the read of a text or of records, whose length is read with the values before it."""
        source, length = self._source, self._source.fresh("length")
        self._run([*run, (length, "B")])
        if field.kind == "records":
            source.emit(f"if {length} > 127:")
            source.emit("    high = buf[at]; at += 1")
            source.emit(f"    {length} = {length} + (high << 7) - 128 if high < 128 else 0")
            source.emit(f"if {length}:")
        else:
            source.emit(f"if 0 < {length} < 128:")
        source.depth += 1
        blob = f"buf[at:(at := at + {length} - 1)]"
        if field.kind == "string":
            blob = f"str({blob}, 'utf-8')" if self._is_view else f"{blob}.decode()"
        source.emit(f"{place} = {blob}")

    def _struct(self, example: Struct, target: str) -> list[Piece]:
        cls = type(example)
        self._makes.append(f"{target} = new({self._source.constant(cls.__name__, cls)})")
        pieces: list[Piece] = []
        tagged: list[Field] = []
        for field in cls.__fields__:
            place, value = f"{target}.{field.name}", getattr(example, field.name)
            if field.is_tagged(self._version) and value != shared_default(field):
                tagged.append(field)
            elif field.is_in(self._version) and field.tag is None:
                pieces += self._field(field, place, value)
            else:
                default = "[]" if field.default == [] else self._source.constant("default", shared_default(field))
                self._sets.append(f"{place} = {default}")
        pieces.append(("", len(tagged)))
        for field in tagged:
            inner = self._field(field, f"{target}.{field.name}", getattr(example, field.name))
            pieces += [("", byte) for byte in uvarint(field.tag or 0) + uvarint(_size(inner))] + inner
        return pieces

    def _field(self, field: Field, place: str, value: Any) -> list[Piece]:
        if field.kind in FIXED:
            return [(place, FIXED[field.kind])]
        if field.kind == "nested":
            target = self._source.fresh("struct")
            self._sets.append(f"{place} = {target}")
            return self._struct(value, target)
        if field.kind != "array" and value:
            assert field.kind in ("string", "records"), "a usual shape has no other octets"
            return [(place, field)]
        if value is None:
            self._sets.append(f"{place} = None")
            return [("", 0)]
        assert field.kind in ("array", "string"), "empty records are not usual"
        targets = [self._source.fresh("struct") for _ in value]
        self._sets.append(f"{place} = {'[' + ', '.join(targets) + ']' if field.kind == 'array' else repr(value)}")
        pieces: list[Piece] = [("", len(value) + 1)]
        for item, target in zip(value, targets, strict=True):
            pieces += self._struct(item, target)
        return pieces


def _size(pieces: list[Piece]) -> int:
    return sum(struct.calcsize(f">{letter}") if place else 1 for place, letter in pieces)
