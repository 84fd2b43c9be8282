"""Commands on groups: `ottla group` and `ottla share-group`."""
