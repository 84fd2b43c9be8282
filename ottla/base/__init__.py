"""Types, errors, settings and ports that all layers share. Imports no other package of ours."""
