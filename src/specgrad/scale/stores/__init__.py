"""What is stored of arrays: their files, and whose they are."""
