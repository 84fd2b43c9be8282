"""The controller: elections, placement, topics and settings, on a metadata store."""
