"""An RL trainer for language models: Ray places it, vLLM generates, Megatron-core trains; whole on a CPU.

`vime_train.controller` reads as the algorithm. Every other package is one room:

- `config`    what a run is, checked before anything starts (no torch)
- `data`      problems and their texts
- `rollout`   from prompts to training samples: generation, rewards, filters, the plan
- `plugins`   functions of the user's, by import path, checked before a run and called with care
- `algorithm` what the config names, mapped to `vime_cp`
- `engine`    the only room that imports vLLM
- `megatron`  the only room that imports Megatron-core
- `cluster`   the only room that imports Ray
- `phases`    the parts of an iteration that are more than a line: supervised steps, weight sync and its check
- `state`     run directories and checkpoints
- `report`    progress, tables, pictures, pages
- `cli`       the command line
"""
