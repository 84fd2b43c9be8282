"""The compiled codec of a message in one version: `decoder`, `encoder`, `encoder_parts` and `writer`.

Each (message, version) is compiled when it is first used (`decoding.py`, `encoding.py`) and kept; the compilers are imported then, too,
so that a start does not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.base.errors import ApiError, ErrorCode
from ottla.wire.schema import Buffer, Message

StructT = TypeVar("StructT", bound=Message)

_decoders: dict[tuple[type[Message], int], Any] = {}
_writers: dict[tuple[type[Message], int], Any] = {}
_encoders: dict[tuple[type[Message], int], Any] = {}
_part_encoders: dict[tuple[type[Message], int], Any] = {}


def decoder(cls: type[StructT], version: int) -> Callable[[Buffer, int], tuple[StructT, int]]:
    """(buffer, offset) -> (message, offset after it). Nonsense raises WireError and nothing else. The buffer ends where its frame ends."""
    decode = _decoders.get((cls, version))
    if decode is None:
        from ottla.wire.decoding import compile_decoder

        _check_version(cls, version)
        decode = _decoders[cls, version] = compile_decoder(cls, version)
    return decode


def encoder(cls: type[StructT], version: int) -> Callable[[StructT], bytes]:
    """message -> bytes. A value that this version has no place for raises ApiError(UNSUPPORTED_VERSION) unless it is ignorable."""
    encode = _encoders.get((cls, version))
    if encode is None:
        write = writer(cls, version)
        join = b"".join

        def encode(message: StructT) -> bytes:
            parts: list[Any] = []
            write(message, parts)
            return join(parts)

        _encoders[cls, version] = encode
    return encode


def encoder_parts(cls: type[StructT], version: int) -> Callable[[StructT], list[Any]]:
    """message -> the same bytes in pieces: large or not bytes-like `records` stand by themselves, as the very objects they are."""
    encode = _part_encoders.get((cls, version))
    if encode is None:
        from ottla.wire.encoding import compile_split_writer

        _check_version(cls, version)
        write = compile_split_writer(cls, version)
        join = b"".join

        def encode(message: StructT) -> list[Any]:
            parts: list[Any] = []
            out: list[Any] = []
            write(message, parts, out)
            if parts:
                out.append(join(parts))
            return out

        _part_encoders[cls, version] = encode
    return encode


def writer(cls: type[StructT], version: int) -> Callable[[StructT, list[Any]], None]:
    """(message, parts) -> appends the pieces of the encoding to `parts`; for callers who put a header before it and join once."""
    write = _writers.get((cls, version))
    if write is None:
        from ottla.wire.encoding import compile_writer

        _check_version(cls, version)
        write = _writers[cls, version] = compile_writer(cls, version)
    return write


def _check_version(cls: type[Message], version: int) -> None:
    lowest, highest = cls.VERSIONS
    if not lowest <= version <= highest:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has versions {lowest} to {highest}, not {version}")
