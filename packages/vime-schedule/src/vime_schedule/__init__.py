"""Plan RL micro-batches over data, pipeline and context parallel ranks: exact, capped, balanced, explained. No dependencies."""
