"""`ottla reset`: removes all data of a stopped broker."""

from __future__ import annotations

import os

from ottla.cli.broker.data_directories import PLACE_OPTIONS, directories_of, running_broker
from ottla.cli.command import YES, Args, Refused, command, confirm
from ottla.cli.render.ottla import Output


@command("reset", "Remove all data of a stopped broker.", *PLACE_OPTIONS, YES, has_connection=False)
def _run(args: Args, output: Output) -> None:
    """Empties the data directories. Raises `Refused` while a broker runs, and for a directory that is not the data directory of a broker.
    """
    directories = [path for path in directories_of(args) if os.path.isdir(path) and os.listdir(path)]
    if not directories:
        output.done(f"nothing is in {', '.join(directories_of(args))}", {"removed": []})
        return
    for path in directories:
        if not os.path.exists(os.path.join(path, "meta.properties")):
            message = f"{path} is not a broker's data directory (it has no meta.properties); nothing was removed"
            raise Refused(message, "NOT_A_DATA_DIRECTORY")
    running = running_broker(args)
    if running is not None:
        raise Refused(f"broker {running.pid} runs in {running.directory}; stop it first: ottla stop", "BROKER_RUNNING")
    confirm(args, f"Remove all topics, records and groups in {', '.join(directories)}?")
    for path in directories:
        _wipe(path)
    output.done(f"{', '.join(directories)}: empty now", {"removed": directories})


def _wipe(directory: str) -> None:
    """Empties a directory while holding its lock, so that no broker starts in it. Raises `Refused` if another process has the lock or a
    file cannot be removed.
    """
    import shutil

    from ottla.adapters.lock import LOCK_FILE, DirectoryLock
    from ottla.base.errors import StorageError

    try:
        lock = DirectoryLock(directory)
    except StorageError as error:
        raise Refused(str(error)) from None
    try:
        for entry in sorted(os.scandir(directory), key=lambda found: found.name == LOCK_FILE):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
    except OSError as error:
        raise Refused(f"cannot remove {error.filename}: {(error.strerror or str(error)).lower()}") from None
    finally:
        lock.release()
