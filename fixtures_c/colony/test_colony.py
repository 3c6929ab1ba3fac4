import subprocess

import pytest

GLIDER = [(2, 1), (3, 2), (1, 3), (2, 3), (3, 3)]


def run_colony(program, columns, rows, generations, cells):
    places = [f"{column},{row}" for column, row in cells]
    run = subprocess.run([program, str(columns), str(rows), str(generations), *places], capture_output=True, text=True)
    assert run.returncode == 0
    return run.stdout.split()


def move(cells, right, down):
    moved = sorted((row + down, column + right) for column, row in cells)
    return [f"{column},{row}" for row, column in moved]


@pytest.mark.parametrize(
    ("columns", "rows", "generations"),
    [
        pytest.param(22, 22, 24, id="near"),
        pytest.param(22, 22, 68, id="far"),
        pytest.param(30, 12, 24, id="wide"),
        pytest.param(12, 30, 24, id="tall"),
    ],
)
def test_glider_moves_by_one_each_four_generations(program, columns, rows, generations):
    way = generations // 4
    assert run_colony(program, columns, rows, generations, GLIDER) == move(GLIDER, way, way)


def test_glider_comes_back(program):
    assert run_colony(program, 22, 22, 88, GLIDER) == move(GLIDER, 0, 0)


def test_block_stays(program):
    block = [(4, 4), (5, 4), (4, 5), (5, 5)]
    assert run_colony(program, 10, 20, 9, block) == move(block, 0, 0)


@pytest.mark.parametrize(("generations", "cells"), [(2, ["3,4", "4,4", "5,4"]), (3, ["4,3", "4,4", "4,5"])])
def test_blinker_turns(program, generations, cells):
    assert run_colony(program, 9, 9, generations, [(3, 4), (4, 4), (5, 4)]) == cells


def test_no_such_cell(program):
    run = subprocess.run([program, "9", "9", "1", "9,0"], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (2, "colony: no cell: 9,0\n")
