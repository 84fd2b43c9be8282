"""Quotas of users, client ids and addresses on this broker. Pure: the caller passes the time in milliseconds."""
