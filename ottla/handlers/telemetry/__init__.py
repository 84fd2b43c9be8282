"""Clients ask for subscriptions, and push metrics (KIP-714)."""
