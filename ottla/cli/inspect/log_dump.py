"""Prints a dump: lines as Kafka's tool prints them, one JSON or YAML object with all files, or (jsonl) a JSON object per entry."""

from __future__ import annotations

import json
import mmap
import os
from typing import Any, NamedTuple

from ottla.analysis.spans import SpanReader, span_lines, span_objects
from ottla.cli.output import write
from ottla.cli.render.ottla import Output


def map_file(path: str) -> bytes | memoryview:
    """Maps a file into memory, because a segment may have more than a gigabyte. Raises `OSError`."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


class Options(NamedTuple):
    is_printing: bool = False
    is_deep: bool = False
    is_hex: bool = False
    bytes_max: int | None = None
    is_bare: bool = False
    is_verifying: bool = False
    is_checking: bool = False
    decoder: str = ""


class Dump:
    """Prints the entries of each file, or collects them for JSON. `finish` prints the JSON, and the mismatches of all files as Kafka's tool
    does."""

    def __init__(self, output: Output, options: Options) -> None:
        self.output = output
        self.options = options
        self._files: list[dict[str, Any]] = []
        self._mismatches: dict[str, list[str]] = {}

    @property
    def has_mismatches(self) -> bool:
        return bool(self._mismatches)

    def begin(self, path: str) -> None:
        self._files.append({"file": path, "entries": []})
        self.line(f"Dumping {path}")

    def line(self, text: str) -> None:
        """Prints a line; nothing with structured output."""
        if not self.output.is_structured:
            write(text + "\n")

    def entry(self, text: str, value: dict[str, Any]) -> None:
        """Adds a batch, index entry or line of a file, as text and as an object."""
        if self.output.form == "jsonl":
            write(json.dumps({"file": self._files[-1]["file"], **value}, ensure_ascii=False) + "\n")
        elif self.output.is_structured:
            self._files[-1]["entries"].append(value)
        else:
            write(text + "\n")

    def fact(self, name: str, value: Any, text: str) -> None:
        """Adds a value that describes the whole file. Form jsonl does not show it."""
        self._files[-1][name] = value
        self.line(text)

    def spans(self, reader: SpanReader) -> None:
        """Adds the spans of a reader and clears them there. Form jsonl does not show them."""
        if not reader.spans:
            return
        if self.output.is_structured:
            self._files[-1].setdefault("bytes", []).extend(span_objects(reader.spans))
        else:
            write("".join(f"{line}\n" for line in span_lines(reader.spans)))
        reader.spans.clear()

    def failed(self, path: str, message: str) -> None:
        if not self._files or self._files[-1]["file"] != path:
            self._files.append({"file": path, "entries": []})
        self._files[-1]["error"] = message

    def mismatch(self, heading: str, path: str, line: str) -> None:
        self._files[-1].setdefault("mismatches", []).append(line)
        self._mismatches.setdefault(f"{heading}{path}", []).append(line)

    def finish(self) -> None:
        if self.output.form != "jsonl" and self.output.is_structured:
            self.output.show_object({"files": self._files})
        for heading, lines in self._mismatches.items():
            self.output.note("\n".join([heading, *(f"  {line}" for line in lines)]))
