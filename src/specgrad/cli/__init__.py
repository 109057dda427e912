"""The `specgrad` command: show, audit, conformance, explain. Needs the extra `specgrad[cli]`."""
