"""`ottla topic`, and the options by which all commands name topics."""
