"""See the package docstring of `vime_train`."""
