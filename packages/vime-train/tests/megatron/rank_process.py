"""One rank in a process of its own: holds a `Trainer` and calls what the tests name, until the connection closes.

Run as `python rank_process.py DESCRIPTOR`, the number of an open socket. Messages are `(target, name, arguments)`;
answers `(True, result)` or `(False, "Type: text")`.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import sys
import warnings
from multiprocessing.connection import Connection

warnings.simplefilter("error")

import torch  # noqa: E402

from vime_train.megatron import Trainer  # noqa: E402


class Rank:
    """What a test may do on a rank besides calling its trainer."""

    def __init__(self) -> None:
        self.trainer: Trainer | None = None
        self.patched: list[tuple[object, str, object]] = []

    def start(self, **arguments: object) -> None:
        self.trainer = Trainer(**arguments)  # type: ignore[arg-type]

    def close(self) -> None:
        if self.trainer is not None:
            self.trainer.close()
        self.trainer = None
        gc.collect()  # the model's cycles hold the process groups, whose threads would go on
        gc.freeze()  # so that the next collection looks at the next trainer alone

    def threads(self) -> int:
        return len(os.listdir("/proc/self/task"))

    def skipped(self) -> object:
        assert self.trainer is not None
        return self.trainer.skipped

    def break_scaling(self) -> None:
        """Forget the factor of the DP and CP size in the loss."""
        module = importlib.import_module("vime_train.megatron._objectives")
        right = module.megatron_loss

        def wrong(partial_sum: torch.Tensor, **arguments: object) -> object:
            loss, count, log = right(partial_sum, **arguments)
            return loss / (int(str(arguments["dp"])) * int(str(arguments["cp"]))), count, log

        self.patched.append((module, "megatron_loss", right))
        module.megatron_loss = wrong  # type: ignore[attr-defined]

    def limit_files(self, size: int) -> None:
        """From now on the kernel refuses to let a file of this process grow beyond `size` bytes, as on a full disk."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def repair(self) -> None:
        self.limit_files(resource.RLIM_INFINITY)
        for module, name, right in self.patched:
            setattr(module, name, right)
        self.patched.clear()


def main() -> None:
    torch.set_num_threads(1)
    rank = Rank()
    with Connection(int(sys.argv[1])) as connection:
        while True:
            try:
                target, name, arguments = connection.recv()
            except EOFError:
                return
            try:
                holder = rank if target == "rank" else rank.trainer
                connection.send((True, getattr(holder, name)(*arguments[0], **arguments[1])))
            except Exception as error:
                connection.send((False, f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main()
