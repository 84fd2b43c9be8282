"""Handlers of the APIs that write and read records."""
