"""Which layers of a Hugging Face model attend within a sliding window, and how wide it is."""

from __future__ import annotations

from vime_schedule._costs._hf_fields import ConfigReader
from vime_schedule._errors import ScheduleError

FULL, SLIDING = "full_attention", "sliding_attention"
UNCOUNTED = {
    "attention_chunk_size": "chunked attention",
    "attn_layer_period": "a state-space layer",
    "conv_L_cache": "a convolution layer",
    "full_attention_interval": "linear attention",
    "index_topk": "sparse attention",
    "mamba_d_state": "a state-space layer",
}


def read_windows(reader: ConfigReader, count: int) -> list[int | None]:
    """Return, per layer, the tokens it sees, or None where it sees all before.

    Read in this order: an explicit `layer_types`; `sliding_window_pattern` (every p-th layer is full);
    `use_sliding_window` with `max_window_layers` (the layers from there on slide); a bare `sliding_window` (all slide).
    """
    strange = reader.first_present(*UNCOUNTED)
    if strange is not None:
        raise ScheduleError(f"the config has `{strange}`, and {UNCOUNTED[strange]} is not counted: use PolynomialCost.")
    types = reader.sequence("layer_types")
    if types:
        return _from_types(reader, types, count)
    if not reader.has("sliding_window") or reader.fields.get("use_sliding_window") is False:
        return [None] * count
    window = reader.size("sliding_window")
    if reader.has("sliding_window_pattern"):
        pattern = reader.size("sliding_window_pattern")
        return [None if (index + 1) % pattern == 0 else window for index in range(count)]
    first = reader.count("max_window_layers") if reader.has("use_sliding_window") else 0
    return [window if index >= first else None for index in range(count)]


def _from_types(reader: ConfigReader, types: list[object], count: int) -> list[int | None]:
    """Map each named layer type; refuse a list of the wrong length or with a type that would be counted wrong."""
    if len(types) != count:
        raise ScheduleError(
            f"`layer_types` names {len(types)} layers but `num_hidden_layers` is {count}: correct the config."
        )
    for index, kind in enumerate(types):
        if kind not in (FULL, SLIDING):
            raise ScheduleError(
                f"`layer_types`[{index}] is {kind!r}, and only {FULL!r} and {SLIDING!r} are counted: "
                "use PolynomialCost."
            )
    return [reader.size("sliding_window") if kind == SLIDING else None for kind in types]
