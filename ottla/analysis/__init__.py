"""Analyses of a cluster that the command line and the console share: samples, lag, plans of offset resets, reasons why clients wait."""
