"""The layout of the metadata store: paths, and the JSON of each node. Controller and brokers read and write it."""
