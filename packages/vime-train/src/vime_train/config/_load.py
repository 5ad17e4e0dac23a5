"""From TOML files and `--set` overrides to a `RunConfig`.

Always true:

- files are laid over each other in order, table by table; a later value wins, and overrides win over files;
- an unknown key, a wrong type or a broken file is one `ConfigError` that names the file (or `--set`), the key, the
  value given, what is needed, and for an unknown key the nearest known one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from vime_train.config._errors import ConfigError
from vime_train.config._run_config import RunConfig

Tree = dict[str, Any]
SHIPPED = Path(__file__).parent.parent / "configs"


def load_config(files: Sequence[str | Path] = (), overrides: Sequence[str] = ()) -> RunConfig:
    """The run that these files and `a.b=c` overrides describe.

    >>> load_config(overrides=["layout.dp=4", "name='demo'"]).layout.dp
    4
    """
    tree: Tree = {}
    origins: dict[tuple[str, ...], str] = {}
    for file in files:
        _overlay(tree, _read(_find(Path(file))), str(file), origins)
    for override in overrides:
        _overlay(tree, _parse_override(override), f"--set {override}", origins)
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(problem, origins) for problem in error.errors())) from error


def _find(path: Path) -> Path:
    """The file itself, or the shipped configuration of that bare name."""
    return path if path.exists() or path.name != str(path) or path.name not in shipped() else SHIPPED / path.name


def _read(path: Path) -> Tree:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file. Shipped configurations: {', '.join(shipped())}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}.") from error


def shipped() -> list[str]:
    """Names of the configurations that come with the package."""
    return sorted(path.name for path in SHIPPED.glob("*.toml"))


def _parse_override(override: str) -> Tree:
    key, separator, text = override.partition("=")
    parts = key.strip().split(".")
    if not separator or not all(parts):
        raise ConfigError(f"--set {override}: write `section.key=value`, for example `layout.dp=2`.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    for part in reversed(parts):
        value = {part: value}
    return dict(value)


def _overlay(
    base: Tree, layer: Mapping[str, Any], origin: str, origins: dict[tuple[str, ...], str], at: tuple[str, ...] = ()
) -> None:
    for key, value in layer.items():
        path = (*at, key)
        if isinstance(value, Mapping):
            if not isinstance(base.get(key), dict):
                base[key] = {}
            origins.setdefault(path, origin)
            _overlay(base[key], value, origin, origins, path)
        else:
            base[key] = value
            origins[path] = origin


def _explain(problem: Any, origins: Mapping[tuple[str, ...], str]) -> str:
    path = tuple(str(part) for part in problem["loc"])
    known = next((path[:length] for length in range(len(path), 0, -1) if path[:length] in origins), ())
    where = f"{origins[known]}: " if known else ""
    key = ".".join(path)
    if problem["type"] == "extra_forbidden":
        return f"{where}unknown key {key}.{_suggestion(path)}"
    return f"{where}{key} = {problem['input']!r}: {problem['msg'][0].lower()}{problem['msg'][1:]}."


def _suggestion(path: tuple[str, ...]) -> str:
    parent: type[BaseModel] = RunConfig
    for part in path[:-1]:
        annotation = parent.model_fields[part].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return ""
        parent = annotation
    close = get_close_matches(path[-1], parent.model_fields, n=1)
    if close:
        return f" Did you mean {'.'.join((*path[:-1], close[0]))}?"
    return f" Known here: {', '.join(sorted(parent.model_fields))}."
