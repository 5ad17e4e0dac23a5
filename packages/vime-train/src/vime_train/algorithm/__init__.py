"""What the configuration names, mapped to `vime_cp`: advantages, the weights of a step, and the loss of a token."""

from vime_train.algorithm._advantages import advantages
from vime_train.algorithm._learning_rate import learning_rate_factor
from vime_train.algorithm._loss_terms import LossTerms, loss_terms
from vime_train.algorithm._policy_terms import policy_terms
from vime_train.algorithm._step_weights import batch_weights, step_weights
from vime_train.algorithm._token_advantages import TokenAdvantages, token_advantages
from vime_train.algorithm._value_terms import value_terms

__all__ = [
    "LossTerms",
    "TokenAdvantages",
    "advantages",
    "batch_weights",
    "learning_rate_factor",
    "loss_terms",
    "policy_terms",
    "step_weights",
    "token_advantages",
    "value_terms",
]
