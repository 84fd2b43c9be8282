"""Handlers of the APIs by which clients push their metrics (KIP-714)."""
