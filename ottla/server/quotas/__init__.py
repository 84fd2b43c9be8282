"""Quotas at work: throttled clients are muted, connections that come too fast wait. Imported when the first quota is set."""
