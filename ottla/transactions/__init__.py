"""The transaction coordinator, as a log machine."""
