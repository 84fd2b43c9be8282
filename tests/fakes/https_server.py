"""A small HTTPS server on the loopback address, with its own certificate for 127.0.0.1."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.fakes.issuer import ec_key

Pages = Mapping[str, bytes | str]
"""What is at a path; a text is where else to look."""


class HttpsServer:
    """Serves pages while `serving` lasts."""

    def __init__(self, directory: Path) -> None:
        self.authorities = str(directory / "authority.pem")
        self.count = 0
        """Requests so far."""
        self._key = directory / "key.pem"
        self._certify()
        self.url = ""

    @contextmanager
    def serving(self, pages: Pages) -> Iterator[None]:
        """`pages` may change meanwhile."""
        listening = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(pages))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.authorities, self._key)
        listening.socket = context.wrap_socket(listening.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{listening.server_port}"
        thread = Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            listening.shutdown()
            thread.join()
            listening.server_close()

    def _handler(self, pages: Pages) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.count += 1
                page = pages.get(self.path)
                if not isinstance(page, bytes):
                    self.send_response(404 if page is None else 302)
                    self.send_header("Location", page or "")
                    page = b""
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                try:
                    self.wfile.write(page)
                except OSError:
                    pass  # the client has read enough

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def _certify(self) -> None:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder(name, name, ec_key().public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(ec_key(), SHA256())
        )
        Path(self.authorities).write_bytes(certificate.public_bytes(Encoding.PEM))
        self._key.write_bytes(ec_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
