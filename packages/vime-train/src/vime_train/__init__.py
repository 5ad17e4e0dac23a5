"""An RL trainer for language models: Ray places it, vLLM generates, Megatron-core trains; whole on a CPU."""
