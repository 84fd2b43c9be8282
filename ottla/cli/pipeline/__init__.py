"""Commands on exactly-once Spark pipelines: `ottla pipeline`."""
