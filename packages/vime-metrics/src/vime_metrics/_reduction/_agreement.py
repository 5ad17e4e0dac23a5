"""How ranks come to share a plan.

Every rank knows, for each combination of schemas met before, the plan it led to. A combination is recognised by
the sum over ranks of a 128-bit number made of (schema, rank), which rides in front of the first sums: a steady step
sends no names.
Only for a new combination the ranks gather 24 bytes each, and each schema that some rank has not seen is sent once.

All ranks take the same decisions, since they depend only on reduced data and on memories filled by the same data.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from vime_metrics._numbers import Array
from vime_metrics._reduction._describe import Describer
from vime_metrics._reduction._plan import Plan
from vime_metrics._reduction._requests import Steps, broadcast, gathered
from vime_metrics._reduction._schema import LocalSchema, Options, Schema
from vime_metrics._reduction._union import unite

TOKEN_SIZE: Final = 4
_REMEMBERED: Final = 256


@dataclass(slots=True)
class GroupMemory:
    """What one rank of one group remembers between reductions."""

    rank: int
    ranks: int
    describer: Describer = field(default_factory=Describer)
    _plans: OrderedDict[bytes, Plan] = field(default_factory=OrderedDict)
    _schemas: OrderedDict[bytes, Schema] = field(default_factory=OrderedDict)
    _follower: dict[bytes, bytes] = field(default_factory=dict)
    _latest: bytes = b""

    def expected(self) -> Plan | None:
        """The plan that followed the latest one last time; a loop that alternates between two steps is foreseen."""
        return self._plans.get(self._follower.get(self._latest, self._latest))

    def find(self, token: bytes) -> Plan | None:
        """The plan of a combination met before."""
        plan = self._plans.get(token)
        if plan is not None:
            self._plans.move_to_end(token)
            self._follow(token)
        return plan

    def agree(self, local: LocalSchema, token: bytes, options: Options) -> Steps[Plan]:
        """Make a plan for a new combination together with all ranks; `SchemaError` on all of them if there is none."""
        digests = yield from self._exchange(local)
        schemas = [self._schemas[digest] for digest in digests]
        entries = unite(schemas, strict=options.strict)
        plan = Plan(entries, local.digest, self.rank, self.ranks, options)
        self._plans[token] = plan
        self._follow(token)
        _forget(self._plans, _REMEMBERED)
        return plan

    def _exchange(self, local: LocalSchema) -> Steps[list[bytes]]:
        """Learn the schemas of all ranks; returns the digest of each."""
        _forget(self._schemas, max(_REMEMBERED, self.ranks))
        headers = yield from gathered(local.digest + len(local.data).to_bytes(8, "little"))
        digests = [header[:16] for header in headers]
        for rank, digest in enumerate(digests):
            if digest not in self._schemas:
                size = int.from_bytes(headers[rank][16:], "little")
                data = yield from broadcast(local.data if digest == local.digest else bytes(size), rank)
                self._schemas[digest] = Schema.from_bytes(data)
            self._schemas.move_to_end(digest)
        return digests

    def _follow(self, token: bytes) -> None:
        self._follower[self._latest] = token
        self._latest = token
        if len(self._follower) > _REMEMBERED:
            self._follower.clear()


def token_part(digest: bytes, rank: int) -> Array:
    """This rank's share of the token: four 32-bit integers, so that sums stay exact for two million ranks."""
    mixed = hashlib.sha256(digest + rank.to_bytes(8, "little")).digest()[: 4 * TOKEN_SIZE]
    return np.frombuffer(mixed, "<u4").astype(np.float64)


def _forget(memory: OrderedDict[bytes, Plan] | OrderedDict[bytes, Schema], keep: int) -> None:
    while len(memory) > keep:
        memory.popitem(last=False)
