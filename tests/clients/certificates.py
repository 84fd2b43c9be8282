"""Makes a certificate authority and certificates for the tests of one module, with openssl."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path


class Authority:
    """`ca` is its certificate; `issue` makes a file with a key and a certificate for localhost."""

    def __init__(self, directory: Path, need_program: Callable[[str], str], name: str = "ca") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._openssl = need_program("openssl")
        self.ca, self._key = directory / f"{name}.pem", directory / f"{name}.key"
        self._run("req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2",
                  "-subj", f"/CN=test {name}", "-keyout", str(self._key), "-out", str(self.ca))  # fmt: skip

    def issue(self, name: str, subject: str = "", names: str = "DNS:localhost,IP:127.0.0.1", days: int = 2) -> Path:
        """Makes a key and a certificate, and returns the path of a PEM file with both. A negative `days` makes an expired certificate."""
        key, request, certificate, extensions = (self._directory / f"{name}.{kind}" for kind in ("key", "csr", "crt", "ext"))
        extensions.write_text(f"subjectAltName={names}\n")
        self._run("req", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", subject or f"/CN={name}",
                  "-keyout", str(key), "-out", str(request))  # fmt: skip
        self._run("x509", "-req", "-in", str(request), "-CA", str(self.ca), "-CAkey", str(self._key), "-extfile", str(extensions),
                  "-days", str(days), "-out", str(certificate))  # fmt: skip
        both = self._directory / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return both

    def _run(self, *words: str) -> None:
        done = subprocess.run([self._openssl, *words], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
