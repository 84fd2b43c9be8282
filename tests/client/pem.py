"""A certificate with its key as PEM, for tests of TLS that need no program to make them. They protect nothing."""

from __future__ import annotations

PASSWORD = "s3cret"

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBmzCCAUGgAwIBAgIUB3Rcee/3dgWn0JBRsBOW/0LspREwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMjE4NTY1M1oYDzIxMjYxMDI5
MTg1NjUzWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARckm6akpHo+vfbGrAD6eGI6p9ZzIcVFNXMffNzwVS8Lh9rciY/EkNX
2/gEQTwks/qQ57RecIlE7OIXMAtoPBjQo28wbTAdBgNVHQ4EFgQUbCH+9jHbnhYD
GcsnvOAtVMptKTwwHwYDVR0jBBgwFoAUbCH+9jHbnhYDGcsnvOAtVMptKTwwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSAAwRQIgcB2NPy3uw/9r3A8odXCP5fh4Y/c/yeahuC05VtMGl6oCIQD5
RFOHoHqHgYXKlHxEINJSB27XWWf3WuwLzhNB6mptoQ==
-----END CERTIFICATE-----
"""
"""A certificate of localhost and 127.0.0.1 that signs itself, until 2126."""

KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgmrTtsl3cKM4Rz9hl
s/7YyWCF0Nchq16XszgAztJvFnihRANCAARckm6akpHo+vfbGrAD6eGI6p9ZzIcV
FNXMffNzwVS8Lh9rciY/EkNX2/gEQTwks/qQ57RecIlE7OIXMAtoPBjQ
-----END PRIVATE KEY-----
"""
"""Its private key."""

ENCRYPTED_KEY = """\
-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-128-CBC,D8D2E5A76EE1AF51C35DFF69DACC5957

mx4p7eFCcff1lE3uk4ij2doM1bG2sOmDMtCiz2lXOF9SrI/ap/J+MVZbAGS5MUbg
opYJq1qbaRhlrw+a4htq0SCiiZkmrbXzzZn9KLerDE7b74xe02Vz1JYDcvSEUo3K
S6Yp5kM2wz1bSzskKKqqmHu8sk+0OPHP1lYZhc631fg=
-----END EC PRIVATE KEY-----
"""
"""The same under `PASSWORD`."""

OTHER_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgGSUIaoxxFHlOl1/A
baY2YQi2AadzpjWiQjCTkaISxVWhRANCAATNxm/TTuljKwU5vQHtClUtItsQBP21
GNI7ICrmWD4QIbo8Efo6brrmovZmrpPkogtQpBrsEYqvO2i1GO3ejbhy
-----END PRIVATE KEY-----
"""
"""A key that does not fit."""
