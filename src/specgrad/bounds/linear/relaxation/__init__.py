"""Linear relaxations of one operator."""
