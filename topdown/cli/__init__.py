"""The command line: one module per group of commands."""

from topdown.cli.app import main

__all__ = ["main"]
