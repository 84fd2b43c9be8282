"""A broker's part in its cluster: its session, its registration, and the metadata that it serves."""
