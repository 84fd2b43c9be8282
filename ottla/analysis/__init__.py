"""Facts about a cluster that the command line and the console both compute: samples, lag, plans of resets, reasons why clients wait."""
