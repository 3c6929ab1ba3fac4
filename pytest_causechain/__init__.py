"""pytest --cause-chain: why does this native program fail its test?"""

__version__ = "0.2.0"
