"""Handlers of the APIs of settings and quotas."""
