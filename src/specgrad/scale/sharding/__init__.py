"""One network on several processes, each with its part of one spatial axis."""
