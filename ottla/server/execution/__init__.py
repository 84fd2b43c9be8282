"""Executes requests: dispatcher, routes, scheduler, waiting requests, and large requests in pieces."""
