"""Handlers of the APIs that clients push their metrics with (KIP-714)."""
