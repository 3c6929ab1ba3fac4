"""Addresses that hold for all runs, and where they lie in one of them.

The program and each shared library that counts as its own code are its modules. An address is that of the module's
file, with the module's number in the upper bits: 0 is the program itself, whose addresses are just those of its file.
"""

from __future__ import annotations

from dataclasses import dataclass

# The system leaves the bits from here on unused in all addresses of a program.
MODULE_SHIFT = 48
LOW_HALF = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Module:
    """Where a module is in one run: `base` is what was added to the addresses of its file, which is mapped from
    `start` to `end`."""

    base: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LoadMap:
    """The modules of one run, by number."""

    modules: tuple[Module, ...]

    @property
    def base(self) -> int:
        """That of the program itself."""
        return self.modules[0].base

    def shift(self, number: int) -> int:
        """What leads from the addresses of a module to those of the run."""
        return self.modules[number].base - (number << MODULE_SHIFT)

    def to_run(self, address: int) -> int:
        return address + self.shift(number_of(address))

    def to_file(self, place: int) -> int:
        """Of a place in foreign code: as if the program reached so far, where it has nothing."""
        number = next((n for n, module in enumerate(self.modules) if module.start <= place < module.end), 0)
        return place - self.shift(number)

    def complete(self, low_half: int) -> int:
        """The address of a place in code of which only the low half is known."""
        for number, module in enumerate(self.modules):
            distance = (low_half - module.start) & LOW_HALF
            if distance < module.end - module.start:
                return module.start + distance - self.shift(number)
        return (low_half - self.base) & LOW_HALF


def number_of(address: int) -> int:
    """The module that an address belongs to."""
    return address >> MODULE_SHIFT


def module_address(number: int, address: int = 0) -> int:
    """An address of a module's file, with the module's number."""
    return number << MODULE_SHIFT | address


NOWHERE = LoadMap((Module(0, 0, 0),))
