"""Extension points: import paths in the configuration, checked at launch with their signatures."""

from vime_train.plugins._calling import PluginCallError, calling
from vime_train.plugins._contracts import CONTRACTS, Contract, check_signature, contract_of, load
from vime_train.plugins._hooks import run_hooks, run_start_hooks
from vime_train.plugins._import_path import PluginError, resolve

__all__ = [
    "CONTRACTS",
    "Contract",
    "PluginCallError",
    "PluginError",
    "calling",
    "check_signature",
    "contract_of",
    "load",
    "resolve",
    "run_hooks",
    "run_start_hooks",
]
