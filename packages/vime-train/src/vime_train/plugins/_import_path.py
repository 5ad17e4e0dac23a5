"""Import paths of extension points: `package.module:name`.

Always true: a path that does not lead to an object is a `PluginError` that names the key, the path, how far it led and
what to write instead.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches

from vime_train._errors import RunError
from vime_train.plugins._calling import calling


class PluginError(RunError, ValueError):
    """An extension point that cannot be used as given."""


def resolve(path: str, *, key: str) -> object:
    """The object behind `package.module:name`; `key` is the configuration key that holds the path.

    >>> resolve("math:sqrt", key="rollout.reward")
    <built-in function sqrt>
    """
    module_name, separator, name = path.partition(":")
    if not separator or not module_name or not name:
        raise PluginError(f"{key} = {path!r} is not an import path: write `package.module:name`.")
    try:
        with calling(f"{key} = {path!r}: importing {module_name!r}", error=PluginError, unchanged=ModuleNotFoundError):
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise PluginError(
                f"{key} = {path!r}: importing {module_name!r} needs {error.name!r}: install it."
            ) from error
        raise PluginError(
            f"{key} = {path!r}: there is no module {error.name!r}. "
            "Check the spelling, and that its folder is on PYTHONPATH or its package is installed."
        ) from error
    if name not in vars(module):
        close = get_close_matches(name, vars(module), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise PluginError(f"{key} = {path!r}: module {module_name!r} has no {name!r}.{hint}")
    found: object = vars(module)[name]
    return found
