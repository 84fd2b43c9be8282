"""Command `ottla console`."""
