"""Context-parallel layouts and RL losses whose value and gradient do not depend on how the batch was split."""
