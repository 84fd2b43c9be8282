"""`ottla security cert`: writes the files of a certificate authority (CA) and of brokers and clients, for trying TLS.

`--force` replaces existing files of brokers and clients; a broker loads its new file on SIGHUP. The CA's files are never replaced. Files
with a private key can be read by their owner only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command import Args, Refused, UsageError, command, flag, option
from ottla.cli.output import write_error
from ottla.cli.render.ottla import Output, Row

if TYPE_CHECKING:
    from ottla.cli.access.certificates import Pair

AUTHORITY = "ca"
HERE = ("localhost", "127.0.0.1", "::1")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
HOST = re.compile(r"[A-Za-z0-9.:*-]{1,253}")
DAYS_MAX = 36_500


class CertificateRow(Row):
    """A file that was written. An existing CA has no row."""

    file: str
    holds: str
    until: str


@command(
    "security cert",
    "An authority and certificates for trying TLS.",
    option("names", nargs="*", metavar="NAME", help="name of a broker or client; NAME.pem gets its key and certificate; default: broker"),
    option("--dir", default="certs", metavar="DIR", help="where the files are written (default ./certs)"),
    option(
        "--host", action="append", metavar="HOST", help="host name or address of the broker; repeatable; default: localhost, 127.0.0.1, ::1"
    ),
    option("--days", type=int, default=365, metavar="N", help="how long the certificates are valid (default 365)"),
    flag("--force", help="replace an existing NAME.pem by a new key and certificate"),
    has_connection=False,
)
def _run(args: Args, output: Output) -> None:
    names, hosts = args.names or ["broker"], args.host or list(HERE)
    _check(names, hosts, args.days)
    from ottla.cli.access import certificates  # imported here because it needs the optional package cryptography

    directory = Path(args.dir)
    files = [directory / f"{name}.pem" for name in names]
    there = [str(file) for file in files if file.exists()]
    if there and not args.force:
        raise Refused(f"{there[0]} is there already; --force replaces it")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        authority, rows = _authority(directory, args.days)
        for name, file in zip(names, files, strict=True):
            pair = certificates.issue(authority, name, hosts, args.days)
            _write(file, pair.key + pair.certificate, 0o600)
            rows.append(_row(file, f"key and certificate of {name}, at {', '.join(hosts)}", pair))
    except OSError as error:
        raise Refused(f"cannot write {error.filename or directory}: {error.strerror}") from None
    output.rows("certificates", CertificateRow, rows)
    ca = directory / f"{AUTHORITY}.pem"
    write_error(f"note: a broker takes ssl.keystore.location={files[0]}, clients ssl.truststore.type=PEM ssl.truststore.location={ca}\n")


def _check(names: Sequence[str], hosts: Sequence[str], days: int) -> None:
    for name in names:
        if not NAME.fullmatch(name) or name == AUTHORITY:
            raise UsageError(f"{name!r} is no name for a certificate: letters, digits, '.', '_' and '-', and not {AUTHORITY}")
    for host in hosts:
        if not HOST.fullmatch(host):
            raise UsageError(f"--host {host!r} is neither a name nor an address")
    if not 1 <= days <= DAYS_MAX:
        raise UsageError(f"--days is between 1 and {DAYS_MAX}")


def _authority(directory: Path, days: int) -> tuple[Pair, list[CertificateRow]]:
    """Returns the CA of the directory and the rows of its files. Makes the CA if the directory has none; an existing CA has no rows. Raises
    `Refused` if only the certificate or only the key exists."""
    from ottla.cli.access.certificates import Pair, make_authority

    certificate, key = directory / f"{AUTHORITY}.pem", directory / f"{AUTHORITY}.key"
    if certificate.exists() and key.exists():
        return Pair(key.read_bytes(), certificate.read_bytes()), []
    if certificate.exists() or key.exists():
        missing = key if certificate.exists() else certificate
        raise Refused(f"{missing} is missing: the authority is {certificate} and {key} together")
    made = make_authority(days)
    _write(key, made.key, 0o600)
    _write(certificate, made.certificate, 0o644)
    return made, [_row(certificate, "the authority, which others need to check certificates", made), _row(key, "its key", made)]


def _write(path: Path, data: bytes, mode: int) -> None:
    """Writes or replaces a file atomically: a broker that reads it at that moment gets the old file or the new file."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    new.replace(path)


def _row(file: Path, holds: str, pair: Pair) -> CertificateRow:
    return CertificateRow(str(file), holds, f"{pair.until:%Y-%m-%d}")
