"""`ottla group` and `ottla share-group`."""
