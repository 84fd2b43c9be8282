"""One module for each API: request and response, all versions in one declaration."""
