"""The execution of requests: dispatch, routes, waiting, and large requests in pieces."""
