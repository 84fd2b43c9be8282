"""Commands on records: produce, consume, sql, offsets, records."""
