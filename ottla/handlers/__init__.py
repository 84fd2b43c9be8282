"""Executes requests: one module for each API, in the room of its subject, and what the handlers of several APIs share."""
