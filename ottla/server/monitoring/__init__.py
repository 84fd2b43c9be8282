"""Metrics and health over HTTP. Imported only where `ottla.metrics.listen` is set."""
