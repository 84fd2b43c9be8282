"""Who leads what, and what exists: elections, placement, topics and settings, on a metadata store."""
