"""Makes a page of a file unreadable, as on a disk with a bad sector: in a process with this preloaded library, reads of the page fail with
EIO. A read that reaches the page ends before it, and a read that begins in it fails. The fault belongs to the file, not to its name: a new
file with the same name can be read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PAGE_BYTES = 4096

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static ssize_t readable(int fd, off64_t at, size_t length) {
    struct stat64 bad, own;
    off64_t page = atoll(getenv("BAD_PAGE"));
    if (stat64(getenv("BAD_FILE"), &bad) || fstat64(fd, &own) || bad.st_dev != own.st_dev || bad.st_ino != own.st_ino)
        return length;
    if (at >= page && at < page + PAGE_BYTES) {
        errno = EIO;
        return -1;
    }
    return at < page && (off64_t)length > page - at ? page - at : (ssize_t)length;
}

ssize_t pread64(int fd, void *buffer, size_t length, off64_t at) {
    ssize_t (*next)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");
    ssize_t left = readable(fd, at, length);
    return left < 0 ? left : next(fd, buffer, left, at);
}

ssize_t preadv64v2(int fd, const struct iovec *pieces, int count, off64_t at, int flags) {
    ssize_t (*next)(int, const struct iovec *, int, off64_t, int) = dlsym(RTLD_NEXT, "preadv64v2");
    ssize_t left = readable(fd, at, pieces[0].iov_len);
    if (left < 0 || count != 1)
        return left < 0 ? left : next(fd, pieces, count, at, flags);
    struct iovec piece = {pieces[0].iov_base, left};
    return next(fd, &piece, 1, at, flags);
}

ssize_t sendfile64(int out, int in, off64_t *at, size_t length) {
    ssize_t (*next)(int, int, off64_t *, size_t) = dlsym(RTLD_NEXT, "sendfile64");
    ssize_t left = readable(in, *at, length);
    return left < 0 ? left : next(out, in, at, left);
}
"""


class BadSector:
    """One page of one file, in the processes that are started with `prefix`."""

    def __init__(self, directory: Path, position: int) -> None:
        """Chooses the page that contains the byte at `position` of the file. `directory` is on the same disk as the file."""
        self._link = directory / "bad-file"
        self._compiler = shutil.which("cc")
        self.prefix = [] if self._compiler is None else self._compile(self._compiler, directory / "bad-sector.so", position)

    def _compile(self, compiler: str, library: Path, position: int) -> list[str]:
        source = library.with_suffix(".c")
        source.write_text(SOURCE)
        options = ["-shared", "-fPIC", "-D_LARGEFILE64_SOURCE", f"-DPAGE_BYTES={PAGE_BYTES}"]
        subprocess.run([compiler, *options, "-o", library, source, "-ldl"], check=True, timeout=60)
        page = position // PAGE_BYTES * PAGE_BYTES
        return ["env", f"LD_PRELOAD={library}", f"BAD_FILE={self._link}", f"BAD_PAGE={page}"]

    def put_into(self, path: Path) -> None:
        if self._compiler is None:
            pytest.skip("there is no C compiler")
        os.link(path, self._link)
