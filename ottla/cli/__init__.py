"""The command line: one package for each thing people do, and beside the packages what all commands share; imported on use."""
