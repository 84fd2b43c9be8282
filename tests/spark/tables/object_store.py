"""A local S3 server (moto) behind a proxy that injects failures: refusals, and answers that are lost after the server has executed the
request. Both run in a separate process (`python -m tests.spark.tables.object_store`), because deltalake holds Python's lock while it waits
for an answer. `PUT /-/faults` sets the faults of the proxy, and `GET /-/faults` returns how many requests each one has affected.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BUCKET = "tables"
ACCESS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "aws_region": "us-east-1"}
FAULTS = "/-/faults"
_HOP = ("connection", "transfer-encoding", "content-length", "keep-alive", "expect")


class ObjectStore:
    """The process with the server; `storage` are the options of a table in it."""

    def __init__(self) -> None:
        root = Path(__file__).resolve().parents[3]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.tables.object_store"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
        )
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())
        self.storage = {**ACCESS, "aws_endpoint_url": f"http://127.0.0.1:{self._port}"}
        request(self._port, "PUT", f"/{BUCKET}")

    def stop(self) -> None:
        self._process.communicate()

    def set_faults(self, *faults: tuple[str, int, int]) -> None:
        """Replaces the faults. Each is a pattern of method and path, the status that such requests get (0: no answer, although the server
        executes them), and the number of requests.
        """
        request(self._port, "PUT", FAULTS, json.dumps(faults).encode())

    def hits(self) -> list[int]:
        """Returns how many requests each fault has affected."""
        found: list[int] = json.loads(request(self._port, "GET", FAULTS)[2])
        return found


def request(
    port: int, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_port = 0
    faults: list[list[int | str]] = []
    hits: list[int] = []
    lock = threading.Lock()

    def _serve(self) -> None:
        body = self._body()
        if self.path == FAULTS:
            if self.command == "PUT":
                _Proxy.faults = json.loads(body)
                _Proxy.hits = [0] * len(_Proxy.faults)
            self._answer(200, {}, json.dumps(_Proxy.hits).encode())
            return
        failed = self._fault()
        if failed:
            code = "AccessDenied" if failed == HTTPStatus.FORBIDDEN else "SlowDown"
            self._answer(failed, {}, f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode())
            return
        sent = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        status, headers, content = request(self.server_port, self.command, self.path, body, sent)
        if failed is None:
            self._answer(status, headers, content)
            return
        self.close_connection = True
        self.connection.shutdown(2)

    def _fault(self) -> int | None:
        with self.lock:
            for number, (pattern, status, count) in enumerate(self.faults):
                if self.hits[number] < int(count) and re.search(str(pattern), f"{self.command} {self.path}"):
                    self.hits[number] += 1
                    return int(status)
        return None

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(parts)

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def main() -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _Proxy.server_port = server.get_host_and_port()[1]
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), _Proxy)
    proxy.daemon_threads = True
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    print(proxy.server_address[1], flush=True)
    sys.stdin.read()  # until the test's process closes it, or ends


if __name__ == "__main__":
    main()
