"""The `specgrad` command, one module per group of subcommands. Needs the extra `specgrad[cli]`."""
