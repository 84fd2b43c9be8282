"""The OpenAPI document of the REST interface, made from the registry of pages."""

from __future__ import annotations

import re
from typing import Any

from ottla._version import __version__
from ottla.console.visit import PAGES


def document() -> dict[str, Any]:
    paths = {}
    for page in PAGES:
        path = page.path.rstrip("/") or "/overview"
        parameters = [_parameter(name, "path") for name in re.findall(r"{(\w+)}", path)]
        parameters += [_parameter(name, "query") for name in page.query]
        paths[path] = {
            "get": {
                "summary": page.summary,
                "operationId": re.sub(r"\W+", "_", path).strip("_"),
                "parameters": parameters,
                "responses": {
                    "200": _answer("The facts of the page, and each table as an array of objects", {"type": "object"}),
                    "default": _answer("A refusal: one sentence", _ERROR),
                },
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ottla's console", "version": __version__},
        "servers": [{"url": "/api/v1"}],
        "paths": paths,
    }


_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def _parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
