"""Enforces quotas: throttled clients are muted, connections beyond their rate wait. Imported when the first quota is set."""
