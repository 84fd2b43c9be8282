"""Ottla's tests: one folder for each package, one file for each source file; `fakes` holds the stand-ins that all share."""
