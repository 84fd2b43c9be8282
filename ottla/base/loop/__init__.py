"""Mechanisms of the event loop: time slices, notification, fair eviction, leases, retries."""
