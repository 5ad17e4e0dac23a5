"""The sizes of the model to train, from the configuration or from the `config.json` of a Hugging Face directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vime_train.config._errors import ConfigError

if TYPE_CHECKING:
    from vime_train.config._sections_model import ModelSection


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertShape:
    """The layers of experts: how many there are, how many a token goes through, and the width of the model."""

    count: int
    per_token: int
    normalised: bool
    hidden_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a layout must divide. `vocab_size` is None where the data source decides it."""

    origin: str
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int | None
    max_position_embeddings: int
    tied_head: bool
    experts: ExpertShape | None = None

    @classmethod
    def of(cls, model: ModelSection, *, vocab_size: int | None = None) -> ModelShape:
        """The shape of `model.path`, or of the model that will be made.

        Raises:
            ConfigError: if the directory has no usable `config.json`.
        """
        if model.path is not None:
            return cls._of_directory(Path(model.path))
        return cls(
            origin="[model]",
            num_hidden_layers=model.num_hidden_layers,
            num_attention_heads=model.num_attention_heads,
            num_key_value_heads=model.num_key_value_heads,
            head_dim=model.head_dim,
            vocab_size=vocab_size,
            max_position_embeddings=model.max_position_embeddings,
            tied_head=False,
            experts=None
            if model.num_experts is None
            else ExpertShape(
                count=model.num_experts,
                per_token=model.num_experts_per_tok,
                normalised=True,
                hidden_size=model.hidden_size,
            ),
        )

    @classmethod
    def _of_directory(cls, directory: Path) -> ModelShape:
        path = directory / "config.json"
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            heads, hidden = values["num_attention_heads"], values["hidden_size"]
            return cls(
                origin=str(path),
                num_hidden_layers=values["num_hidden_layers"],
                num_attention_heads=heads,
                num_key_value_heads=values.get("num_key_value_heads") or heads,
                head_dim=values.get("head_dim") or hidden // heads,
                vocab_size=values["vocab_size"],
                max_position_embeddings=values["max_position_embeddings"],
                tied_head=bool(values.get("tie_word_embeddings", False)),
                experts=_experts(values),
            )
        except FileNotFoundError as error:
            raise ConfigError(
                f"model.path = {str(directory)!r}: there is no {path}. Name a Hugging Face directory, or leave "
                "model.path out to train a small model that the program makes."
            ) from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"model.path = {str(directory)!r}: {path} is not valid JSON: {error}.") from error
        except KeyError as error:
            raise ConfigError(f"model.path = {str(directory)!r}: {path} has no {error.args[0]!r}.") from error


def _experts(values: Mapping[str, Any]) -> ExpertShape | None:
    count = values.get("num_experts") or values.get("num_local_experts")  # transformers 5 writes the second name
    if not count:
        return None
    return ExpertShape(
        count=count,
        per_token=values["num_experts_per_tok"],
        normalised=bool(values.get("norm_topk_prob", False)),
        hidden_size=values["hidden_size"],
    )
