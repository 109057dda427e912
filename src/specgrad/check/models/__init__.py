"""Models that are checked: loaded, run, and their inputs."""
