"""A fake OAuth token endpoint on the loopback address, without TLS."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple


class Asked(NamedTuple):
    """One request."""

    path: str
    authorization: str
    body: str


class TokenEndpoint:
    """Answers with the given (status, body) pairs, then with new tokens of `make`."""

    def __init__(self, make: Callable[[], str]) -> None:
        self.make = make
        self.script: deque[tuple[int, bytes]] = deque()
        self.asked: list[Asked] = []
        self.url = ""

    @contextmanager
    def serving(self) -> Iterator[TokenEndpoint]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{server.server_port}/token"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def _answer(self) -> tuple[int, bytes]:
        if self.script:
            return self.script.popleft()
        return 200, json.dumps({"access_token": self.make(), "token_type": "Bearer", "expires_in": 600}).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.asked.append(Asked(self.path, self.headers["Authorization"], body))
                status, answer = endpoint._answer()
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
