"""Quotas of users, client ids and addresses on this broker. The code reads no clock: callers pass the time in milliseconds."""
