"""One module for each API that is served, with a `handle(broker, request, body)`; their table is `ottla/requests/apis.py`."""
