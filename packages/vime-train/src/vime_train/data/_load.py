"""From the `[data]` section to a data source."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from vime_train.plugins import PluginError, resolve

if TYPE_CHECKING:
    from vime_train.config import DataSection
    from vime_train.data._protocol import DataSource


def load_source(section: DataSection, *, model_path: str | None = None) -> DataSource:
    """The data source that `data.source` names, called with `data.options`.

    With `model_path` the source gets the tokenizer of that Hugging Face directory, else it brings its own.
    """
    factory = resolve(section.source, key="data.source")
    if not callable(factory):
        raise PluginError(f"data.source = {section.source!r} is not callable: name a class or a function.")
    options: dict[str, object] = dict(section.options)
    if model_path is not None:
        from vime_train.data._hf_tokenizer import HfTokenizer

        options["tokenizer"] = HfTokenizer(model_path)
    try:
        return cast("DataSource", factory(**options))
    except TypeError as error:
        raise PluginError(
            f"data.source = {section.source!r} refused data.options = {section.options}: {error}"
        ) from error
