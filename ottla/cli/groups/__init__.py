"""Commands on groups: `ottla group`, `ottla share-group` and `ottla streams-group`."""
