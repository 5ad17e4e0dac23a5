"""Advantages and returns: of whole rollouts before the batch is split, and of tokens wherever the split put them."""
