"""The package's version, from its installed metadata."""

from importlib.metadata import version

__version__ = version("dagora")
