"""A schema registry over HTTP, as far as ours asks one: schemas by id, the newest of a subject, new ones."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

ALLOWED = (None, "Basic bWU6cEB3")
"""Without a login, or me:p@w."""


class Registry:
    """What is stored: schemas by id, and the ids of each subject, the newest last."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}

    def get(self, path: str) -> dict[str, Any] | None:
        match [urllib.parse.unquote(word) for word in path.strip("/").split("/")]:
            case ["schemas", "ids", number]:
                return self.schemas.get(int(number))
            case ["subjects", subject, "versions", "latest"] if subject in self.subjects:
                number = self.subjects[subject][-1]
                return {"subject": subject, "version": len(self.subjects[subject]), "id": number, **self.schemas[number]}
        return None

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        match [urllib.parse.unquote(word) for word in path.strip("/").split("/")]:
            case ["subjects", subject, "versions"]:
                known = [number for number, schema in self.schemas.items() if schema == body]
                number = known[0] if known else max(self.schemas, default=0) + 1
                self.schemas[number] = body
                self.subjects.setdefault(subject, []).append(number)
                return {"id": number}
        return None


@contextmanager
def running_registry() -> Iterator[Registry]:
    """An empty registry on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(registry.get(self.path))

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            self._answer(registry.post(self.path, json.loads(self.rfile.read(length))))

        def _answer(self, found: dict[str, Any] | None) -> None:
            is_allowed = self.headers.get("Authorization") in ALLOWED
            code = 401 if not is_allowed else 404 if found is None else 200
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(found if code == 200 else {"error_code": code, "message": "Subject or schema not found"}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    registry = Registry(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
