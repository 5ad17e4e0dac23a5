"""From prompts to training samples: generation, rewards, filters, and the plan, all before any trainer is involved."""

from vime_train.rollout._advantages import batch_advantages
from vime_train.rollout._answered import answered
from vime_train.rollout._assemble import IterationBatch, assemble, warm_up
from vime_train.rollout._batch import RankBatch
from vime_train.rollout._buffer import GroupBuffer
from vime_train.rollout._check import RolloutError, check_rollouts
from vime_train.rollout._collect import Collected, Collector
from vime_train.rollout._context import RolloutContext
from vime_train.rollout._dump import DumpError, load_rollouts, save_rollouts
from vime_train.rollout._evaluate import Evaluation, evaluate
from vime_train.rollout._evaluation_sets import EvaluationSets
from vime_train.rollout._forward import forward_batches
from vime_train.rollout._groups import by_group, reward_varies, split_zero_variance
from vime_train.rollout._names import check_names
from vime_train.rollout._off_policy import mask_off_policy, only_version
from vime_train.rollout._plan import objective, parallel_layout, plan, plan_lengths, step_sizes
from vime_train.rollout._reward import Reward, RewardError
from vime_train.rollout._rewards import Answer, GroupReward, load_reward
from vime_train.rollout._samples import Problem, Rollout, Sample, Status
from vime_train.rollout._score_split import ScoredAnswer, score_split, split_figures
from vime_train.rollout._supervised import supervised_batches
from vime_train.rollout.attempts import generate_rollouts

__all__ = [
    "Answer",
    "Collected",
    "Collector",
    "DumpError",
    "Evaluation",
    "EvaluationSets",
    "GroupBuffer",
    "GroupReward",
    "IterationBatch",
    "Problem",
    "RankBatch",
    "Reward",
    "RewardError",
    "Rollout",
    "RolloutContext",
    "RolloutError",
    "Sample",
    "ScoredAnswer",
    "Status",
    "answered",
    "assemble",
    "batch_advantages",
    "by_group",
    "check_names",
    "check_rollouts",
    "evaluate",
    "forward_batches",
    "generate_rollouts",
    "load_reward",
    "load_rollouts",
    "mask_off_policy",
    "objective",
    "only_version",
    "parallel_layout",
    "plan",
    "plan_lengths",
    "reward_varies",
    "save_rollouts",
    "score_split",
    "split_figures",
    "split_zero_variance",
    "step_sizes",
    "supervised_batches",
    "warm_up",
]
