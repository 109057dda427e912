"""Two models: are they the same, and how far may they differ?"""
