"""`ottla topic`, and the options that name topics in all commands."""
