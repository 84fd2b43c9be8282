"""A broker for other people's tests."""
