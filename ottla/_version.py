"""The version, as a constant: asking the installed package for it costs 25 ms of every start."""

from __future__ import annotations

__version__ = "0.1.0"
