"""Commands on records: produce, consume, offsets, records."""
