"""Group filters that come with the package, for `rollout.group_filter`."""

from vime_train.rollout._groups import reward_varies

__all__ = ["reward_varies"]
