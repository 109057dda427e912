"""What a page of bounds shows: how they grow, how a search divided its question, the input that breaks it."""
