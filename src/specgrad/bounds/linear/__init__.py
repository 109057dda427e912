"""Linear bounds (CROWN): relaxations, layers, the way back from an objective to the inputs."""

from ...errors import need

need("torch", "linear bounds need")
