"""Faults to find, as patches; docs/exercises.md describes them."""
