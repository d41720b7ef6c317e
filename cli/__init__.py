"""The command line and the composition root: builds everything and starts it. It alone may import all packages."""

__version__ = "0.1.0"
