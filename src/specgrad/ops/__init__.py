"""The operators, one file per family; importing this package registers them all."""
