"""What the configuration names, mapped to `vime_cp`: advantages, the weights of a step, and the loss of a token."""

from vime_train.algorithm._advantages import advantages
from vime_train.algorithm._policy_terms import policy_terms
from vime_train.algorithm._step_weights import batch_weights, step_weights

__all__ = ["advantages", "batch_weights", "policy_terms", "step_weights"]
