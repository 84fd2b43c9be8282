"""Quotas: how much users, clients and addresses may ask of this broker. Pure: the time comes in as milliseconds."""
