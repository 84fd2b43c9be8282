"""Start of a Spark Python worker: imports the installed, compiled pyspark instead of the same modules in an archive.

Spark puts `pyspark/python/lib/pyspark.zip` first on the path of its workers. The archive has no compiled modules, so each process compiles
its imports, which takes longer than a small batch. If the archive is part of a pyspark that this interpreter has installed, both have the
same modules (py4j may have another version), and the archive is moved to the end of the path. Other interpreters and other Sparks are left
unchanged.

Python runs only one module of this name. The `sitecustomize` that Python would have run otherwise is therefore run at the end. The module
imports no other module of Ottla, because every start of a worker waits for it.
"""

from __future__ import annotations

import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def installed_first(path: list[str]) -> list[str]:
    """Returns the path with archives of pyspark and py4j at its end, if a directory on the path has their contents."""
    late = [entry for entry in path if _is_installed(entry, path)]
    return [entry for entry in path if entry not in late] + late


def _is_installed(archive: str, path: list[str]) -> bool:
    library, name = os.path.split(archive)
    if not name.endswith(".zip") or os.path.basename(library) != "lib":
        return False
    package = os.path.dirname(os.path.dirname(library))
    site = os.path.dirname(package)
    module = "py4j" if name.startswith("py4j-") else "pyspark" if name == "pyspark.zip" else ""
    is_part = os.path.basename(package) == "pyspark" and site in path
    return is_part and module != "" and os.path.isfile(os.path.join(site, module, "__init__.py"))


def _run_the_next() -> None:
    """Imports the `sitecustomize` that Python would have run without this one."""
    this = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", this)


if __name__ == "sitecustomize":
    sys.path[:] = installed_first([entry for entry in sys.path if os.path.abspath(entry) != _HERE])
    _run_the_next()
