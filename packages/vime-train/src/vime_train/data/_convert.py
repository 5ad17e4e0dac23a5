"""From a GGUF file or a model with a tied LM head, a Hugging Face directory that can be trained and served.

Always true of what is made: float32 safetensors, an untied LM head (vLLM's CPU build serves a stale head after a reload
when it is tied), the tokenizer with its chat template; whole or absent.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vime_train.data._errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

GGUF_LIBRARIES = ("gguf", "accelerate")


def convert_model(source: str, directory: Path) -> None:
    """Write the model of `source` into `directory`.

    Args:
        source: a GGUF file, `package:file` for one that an installed package carries, or a Hugging Face directory.
        directory: where the Hugging Face directory goes; it must not exist.

    Raises:
        DataError: if there is no such model, or it cannot be read.
    """
    folder, gguf_file = _locate(source)
    options: dict[str, Any] = {} if gguf_file is None else {"gguf_file": gguf_file}
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **options)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32", **options)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{source} cannot be read as a model: {error}") from error
    _untie(model)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _locate(source: str) -> tuple[str, str | None]:
    """The folder of a model and, if it is one, the GGUF file in it."""
    package, colon, name = source.partition(":")
    if colon:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise DataError(f"{source}: no package {package!r} is installed: install the one that carries {name}.")
        path = Path(spec.origin).parent / name
    else:
        path = Path(source)
    if path.is_dir():
        return str(path), None
    if path.suffix != ".gguf" or not path.is_file():
        raise DataError(f"{source}: a GGUF file or a Hugging Face directory is needed, and {path.name} is neither.")
    missing = [library for library in GGUF_LIBRARIES if find_spec(library) is None]
    if missing:
        raise DataError(f'reading {path.name} needs {" and ".join(missing)}: python -m pip install "vime-train[gguf]"')
    return str(path.parent), path.name


def _untie(model: PreTrainedModel) -> None:
    """Give the LM head weights of its own, and forget that the file was quantised."""
    import torch

    if model.config.tie_word_embeddings:
        embedding = model.get_input_embeddings().weight
        model.get_output_embeddings().weight = torch.nn.Parameter(embedding.detach().clone())
    model.config.tie_word_embeddings = False
    model.hf_quantizer = None
    model.is_quantized = False
    vars(model.config).pop("quantization_config", None)
