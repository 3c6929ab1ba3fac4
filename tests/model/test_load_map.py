"""Addresses that hold for all runs, and those of one run."""

from __future__ import annotations

import pytest

from pytest_causechain.model.load_map import LoadMap, Module, module_address, number_of

PROGRAM = Module(0x5555_5555_4000, 0x5555_5555_4000, 0x5555_5555_9000)
FIXED = Module(0, 0x40_0000, 0x40_5000)
LIBRARY = Module(0x7FFF_F7FB_0000, 0x7FFF_F7FB_0000, 0x7FFF_F7FB_5000)
OTHER = Module(0x7FFF_F7FA_0000, 0x7FFF_F7FA_0000, 0x7FFF_F7FA_5000)
LIBC = 0x7FFF_F7DD_1234


@pytest.mark.parametrize("program", [PROGRAM, FIXED], ids=["relocated", "fixed"])
class TestBothWays:
    def test_each_module(self, program):
        load_map = LoadMap((program, LIBRARY, OTHER))
        for number, module in enumerate(load_map.modules):
            place = module.start + 0x1139
            address = load_map.to_file(place)
            assert address == module_address(number, place - module.base)
            assert number_of(address) == number
            assert load_map.to_run(address) == place

    def test_low_halves_of_return_addresses(self, program):
        load_map = LoadMap((program, LIBRARY, OTHER))
        for module in load_map.modules:
            place = module.start + 0x1139
            assert load_map.complete(place & 0xFFFF_FFFF) == load_map.to_file(place)

    def test_foreign_code_belongs_to_no_library(self, program):
        load_map = LoadMap((program, LIBRARY, OTHER))
        for address in (load_map.to_file(LIBC), load_map.complete(LIBC & 0xFFFF_FFFF)):
            assert number_of(address) == 0
            assert not 0 <= address < program.end - program.base


def test_the_program_alone_has_the_addresses_of_its_file():
    load_map = LoadMap((PROGRAM,))
    assert load_map.to_run(0x1139) == PROGRAM.base + 0x1139
    assert load_map.base == PROGRAM.base
