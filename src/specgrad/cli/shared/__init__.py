"""Options, files and the console that commands share."""
