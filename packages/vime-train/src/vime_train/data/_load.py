"""From the `[data]` section to a data source."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from vime_train.data._errors import DataError
from vime_train.plugins import PluginError, calling, resolve

if TYPE_CHECKING:
    from vime_train.config import DataSection
    from vime_train.data._protocol import DataSource, Tokenizer


def load_source(
    section: DataSection, *, model_path: str | None = None, tokenizer: Tokenizer | None = None
) -> DataSource:
    """The data source that `data.source` names, called with `data.options` and `data.max_prompt_tokens`.

    With `model_path` the source gets the tokenizer of that Hugging Face directory, with `tokenizer` that one; else it
    brings its own.

    Raises:
        PluginError: if there is no such source, or it does not take these options.
        DataError: if the data cannot be used.
    """
    factory = resolve(section.source, key="data.source")
    if not callable(factory):
        raise PluginError(f"data.source = {section.source!r} is not callable: name a class or a function.")
    arguments: dict[str, object] = {**section.options, "max_prompt_tokens": section.max_prompt_tokens}
    if tokenizer is not None:
        arguments["tokenizer"] = tokenizer
    elif model_path is not None:
        from vime_train.data._hf_tokenizer import HfTokenizer

        arguments["tokenizer"] = HfTokenizer(model_path)
    _check_arguments(factory, arguments, section)
    name = f"data.source = {section.source!r}"
    with calling(name, lambda: f"data.options = {section.options}", DataError):
        return cast("DataSource", factory(**arguments))


def _check_arguments(factory: Callable[..., object], arguments: Mapping[str, object], section: DataSection) -> None:
    signature = inspect.signature(factory)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        takes = ", ".join(name for name in signature.parameters if name not in ("tokenizer", "max_prompt_tokens"))
        hint = " It needs a model with a tokenizer: set model.path." if "'tokenizer'" in str(error) else ""
        raise PluginError(
            f"data.source = {section.source!r} with data.options = {section.options}: {error}; it takes {takes}.{hint}"
        ) from error
