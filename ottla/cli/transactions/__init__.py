"""Commands on transactions: `ottla txn`."""
