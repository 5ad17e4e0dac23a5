"""Training metrics as values that add, reduced across ranks in a fixed small number of collectives."""
