"""Configurations that come with the package; `vime-train run arithmetic.toml` finds them by name."""
