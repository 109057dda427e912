"""What every checker reads: exact numbers, executions, the deployed graph and the tree of splits."""
