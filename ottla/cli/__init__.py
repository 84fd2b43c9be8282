"""The command line `ottla`: a package for each subject of commands, and modules that all commands share. Modules are imported on use."""
