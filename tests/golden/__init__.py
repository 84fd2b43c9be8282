"""Bytes that must not change: what real clients and this broker have sent to each other, and the defaults of messages."""
