"""Extension points: import paths in the configuration, checked at launch with their signatures."""

from vime_train.plugins._import_path import PluginError, resolve

__all__ = ["PluginError", "resolve"]
