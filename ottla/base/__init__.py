"""Types, errors, settings and interfaces (ports) that all layers share. This package imports no other package of Ottla."""
