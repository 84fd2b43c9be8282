"""Executes requests: one module for each API, in a folder by subject, and helpers of several handlers."""
