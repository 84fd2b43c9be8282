"""Metrics that clients push (KIP-714): subscriptions, the clients that report, their payloads, and the series that are kept of them."""
