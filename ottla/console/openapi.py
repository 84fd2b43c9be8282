"""The OpenAPI document of the REST interface, made from the registry of pages, the table of downloads, and the live tail."""

from __future__ import annotations

import re
from typing import Any

from ottla._version import __version__
from ottla.console import streams
from ottla.console.downloads import DOWNLOADS
from ottla.console.pages.messages import TAIL_QUERY
from ottla.console.visit import PAGES


def document() -> dict[str, Any]:
    of_page = _answer("The facts of the page, and each table as an array of objects", {"type": "object"})
    text = {"type": "string"}
    paths = [_path(page.path.rstrip("/") or "/overview", page.summary, page.query, of_page) for page in PAGES]
    paths += [_path(one.path, one.summary, one.query, _answer("The file", text, *one.media_types)) for one in DOWNLOADS]
    paths.append(_path(streams.PATH, "Records of a topic as they are appended, as server-sent events", TAIL_QUERY,
                       _answer("Events: begun, records, problem", text, "text/event-stream")))  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ottla's console", "version": __version__},
        "servers": [{"url": "/api/v1"}],
        "paths": dict(paths),
    }


def _path(path: str, summary: str, query: tuple[str, ...], answer: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    parameters = [_parameter(name, "path") for name in re.findall(r"{(\w+)}", path)]
    return path, {
        "get": {
            "summary": summary,
            "operationId": re.sub(r"\W+", "_", path).strip("_"),
            "parameters": [*parameters, *(_parameter(name, "query") for name in query)],
            "responses": {"200": answer, "default": _answer("A refusal: one sentence", _ERROR)},
        }
    }


_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def _parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}


def _answer(description: str, schema: dict[str, Any], *media_types: str) -> dict[str, Any]:
    return {"description": description, "content": {one: {"schema": schema} for one in media_types or ("application/json",)}}
