"""The values behind a vendor's names of literals, as `CacheDType = Literal["auto", "fp8"]`, read from its sources.

Always true: a name that cannot be followed to literals allows every value; nothing is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

from vime_train.config._vendor_fields import VendorClass, source_of

Choice = str | int | bool | None


def choices(vendor: VendorClass, annotation: str) -> tuple[Choice, ...]:
    """The values that an annotation allows, where it is made of literals and names of them; empty where it is not."""
    found: list[Choice] = []
    for part in _parts(ast.parse(annotation, mode="eval").body):
        values = (None,) if isinstance(part, ast.Constant) and part.value is None else _values(vendor, part)
        if not values:
            return ()
        found += values
    return tuple(found)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """The sides of a union."""
    if isinstance(node, ast.BinOp):
        yield from _parts(node.left)
        yield from _parts(node.right)
    else:
        yield node


def _values(vendor: VendorClass, node: ast.expr) -> tuple[Choice, ...]:
    match node:
        case ast.Name(id=name):
            return _named(vendor, name)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
            elements = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return tuple(one.value for one in elements if isinstance(one, ast.Constant))  # type: ignore[misc]
    return ()


@cache
def _named(vendor: VendorClass, name: str) -> tuple[Choice, ...]:
    """The literals of a name that the vendor's file imports."""
    for node in ast.parse(source_of(vendor) or "").body:
        if isinstance(node, ast.ImportFrom) and node.module and any(one.name == name for one in node.names):
            file = str(PurePosixPath(*node.module.split(".")[1:])) + ".py"
            return _assigned(VendorClass(package=vendor.package, file=file, name=name), name)
    return ()


def _assigned(vendor: VendorClass, name: str) -> tuple[Choice, ...]:
    for node in ast.parse(source_of(vendor) or "").body:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return _values(vendor, value)
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                return _values(vendor, value)
    return ()
