"""Per-token losses: pure functions of this rank's tokens, so that any split of a batch adds up to the same loss."""
