"""Every layer of one model on one runtime."""
