"""The layout of the metadata store: the paths of its nodes, and their JSON."""
