"""Fields of the installed vendors' own dataclasses, read from their sources without importing them.

Always true: reading costs milliseconds and starts nothing: importing Megatron or vLLM to ask would take ten seconds.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorClass:
    """A dataclass of a vendor: which file of which installed package, and its name there."""

    package: str
    file: str
    name: str
    aliases_are_scalars: bool = False
    """Whether a type that is only a name stands for literals, or where it ends in Config for a table (vLLM's habit),
    and not for an object."""


@cache
def fields(vendor: VendorClass) -> dict[str, str]:
    """Field name to annotation, as written; empty when the vendor is not installed."""
    source = source_of(vendor)
    if source is None:
        return {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == vendor.name:
            return {
                statement.target.id: ast.unparse(statement.annotation)
                for statement in node.body
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
            }
    raise LookupError(f"{vendor.package}/{vendor.file} has no class {vendor.name}: its layout is not the expected one.")


def source_of(vendor: VendorClass) -> str | None:
    """The text of the vendor's file; None when it is not installed."""
    spec = find_spec(vendor.package)  # of a top-level name: this imports nothing
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(location, vendor.file)
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return None


_SCALARS: dict[str, Callable[[object], bool]] = {
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "list": lambda value: isinstance(value, list),
    "dict": lambda value: isinstance(value, dict),
    "None": lambda value: value is None,
    "Any": lambda value: True,
}


def accepts(annotation: str, value: object, *, aliases_are_scalars: bool) -> bool:
    """Whether a value of a configuration file fits a type as written in the vendor's source.

    >>> accepts("Optional[int]", 3, aliases_are_scalars=False), accepts("bool", 3, aliases_are_scalars=False)
    (True, False)
    """
    return _accepts(ast.parse(annotation, mode="eval").body, value, aliases_are_scalars)


def _accepts(node: ast.expr, value: object, alias: bool) -> bool:
    match node:
        case ast.Constant(value=None):
            return value is None
        case ast.Constant(value=str() as quoted):
            return _accepts(ast.parse(quoted, mode="eval").body, value, alias)
        case ast.Name(id=name):
            check = _SCALARS.get(name.lower() if name in ("List", "Dict") else name)
            if check:
                return check(value)
            return alias and isinstance(value, dict if name.endswith("Config") else str | int | float)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _accepts(left, value, alias) or _accepts(right, value, alias)
        case ast.Subscript(value=ast.Name(id=name), slice=inner):
            return _accepts_generic(name, inner, value, alias)
    return False


def _accepts_generic(name: str, inner: ast.expr, value: object, alias: bool) -> bool:
    arguments = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    match name:
        case "Optional":
            return value is None or _accepts(inner, value, alias)
        case "Union":
            return any(_accepts(argument, value, alias) for argument in arguments)
        case "Literal":
            return any(isinstance(argument, ast.Constant) and argument.value == value for argument in arguments)
        case "list" | "List":
            return isinstance(value, list) and all(_accepts(inner, item, alias) for item in value)
        case "dict" | "Dict":
            return isinstance(value, dict)
    return False
