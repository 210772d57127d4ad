#!/usr/bin/env python3
"""Totals that the exact solvers must reach, by scipy: tests/golden/make_solvers.py > solvers.golden

scipy.optimize.linear_sum_assignment gets the expanded matrix, one column per place. Needs python3-scipy and
python3-numpy; any version of them, as the least total is one number.

Format, in whitespace-separated integers: rows sinks total, capacity of each sink, cost row by row.
"""
import numpy as np
from scipy.optimize import linear_sum_assignment

SHAPES = [(5, 3, 20), (6, 4, 20), (24, 5, 20), (70, 9, 6), (256, 8, 3), (600, 6, 2)]  # rows, sinks, how many
COST_MAX = 1 << 28


def costs_of(rng, kind, rows, sinks):
    if kind == 0:
        return rng.integers(0, 1000, (rows, sinks))
    if kind == 1:
        return rng.integers(0, 3, (rows, sinks))
    if kind == 2:  # all want the same sinks
        return np.arange(sinks)[None, :] * 5 + rng.integers(0, 9, (rows, sinks))
    return rng.choice([0, 1, COST_MAX - 1, COST_MAX], (rows, sinks)) if rows < 50 else rng.integers(0, 99, (rows, sinks))


def capacities_of(rng, kind, rows, sinks):
    places = rows + (int(rng.integers(1, rows + 1)) if kind % 2 else 0)
    return rng.multinomial(places, rng.dirichlet(np.full(sinks, 1.0 if kind < 4 else 20.0)))


def main():
    rng = np.random.default_rng(20)
    for rows, sinks, count in SHAPES:
        for number in range(count):
            cost = costs_of(rng, number % 4, rows, sinks)
            capacity = capacities_of(rng, number % 6, rows, sinks)
            expanded = np.repeat(cost, capacity, axis=1).astype(np.float64)
            at = linear_sum_assignment(expanded)
            print(rows, sinks, int(expanded[at].sum()))
            print(*capacity)
            print(*cost.flatten())


main()
