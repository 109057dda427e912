"""What input splitting and neuron splitting share."""
