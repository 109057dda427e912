"""One array against one ball: the verdict, and what may explain a failure."""
