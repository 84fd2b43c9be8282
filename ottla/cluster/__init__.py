"""What a broker knows of its cluster: its session, its registration, and the metadata that it serves."""
