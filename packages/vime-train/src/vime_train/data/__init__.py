"""Where problems come from: data sources, tokenizers, and the small model that the program can make itself."""

from vime_train.data._char_tokenizer import CharTokenizer
from vime_train.data._convert import convert_model
from vime_train.data._errors import DataError
from vime_train.data._hf_model import hf_config, make_model, weight_shapes
from vime_train.data._hf_tokenizer import HfTokenizer
from vime_train.data._load import load_source
from vime_train.data._protocol import DataSource, Tokenizer

__all__ = [
    "CharTokenizer",
    "DataError",
    "DataSource",
    "HfTokenizer",
    "Tokenizer",
    "convert_model",
    "hf_config",
    "load_source",
    "make_model",
    "weight_shapes",
]
