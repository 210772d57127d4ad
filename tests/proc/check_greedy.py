#!/usr/bin/env python3
"""Places samples anew by ESD's Algorithms 1 and 2 with alpha 0, from the paper, and compares.

usage: check_greedy.py PLACEMENTS ROOM FAST SLOW

PLACEMENTS: of a simulation (`lanyard sim --placements`) whose caches hold everything, in which every
row has to be pulled first; half of the workers are on fast links. ROOM: samples that a worker takes.
FAST, SLOW: what a row costs on either link. The planner counts in ticks, a whole number for each
link: 26214 and 262144 for rates of 10 to 1. Prints how many samples are elsewhere; with 1 and 10 some
are, because sums that are equal in fractions differ in ticks, and so do the orders of the rows.
"""
import sys
from fractions import Fraction


def costs_of(keys, price, holders):
    """Algorithm 1: a pull where the latest version is not, and a push by each worker that has it."""
    costs = [Fraction(0)] * len(price)
    for key in keys:
        have = holders.get(key, ())
        for worker, pull in enumerate(price):
            if worker not in have:
                costs[worker] += pull + sum(price[other] for other in have)
    return costs


def place(costs, room):
    """Algorithm 2 with alpha 0."""
    left, placed = [room] * len(costs[0]), [None] * len(costs)
    smallest = [sorted(one)[:2] for one in costs]
    for sample in sorted(range(len(costs)), key=lambda i: smallest[i][0] - smallest[i][1]):
        _, worker = min((cost, w) for w, cost in enumerate(costs[sample]) if left[w])
        left[worker] -= 1
        placed[sample] = worker
    return placed


def main():
    path, room, fast, slow = sys.argv[1:]
    iterations = {}
    with open(path, encoding="ascii") as file:
        for line in file:
            iteration, worker, *keys = line.split()
            iterations.setdefault(int(iteration), []).append((int(worker), set(keys)))
    workers = 1 + max(worker for batch in iterations.values() for worker, _ in batch)
    price = [Fraction(fast)] * (workers // 2) + [Fraction(slow)] * (workers - workers // 2)
    holders, count, elsewhere = {}, 0, 0
    for _, batch in sorted(iterations.items()):
        placed = place([costs_of(keys, price, holders) for _, keys in batch], int(room))
        elsewhere += sum(mine != worker for mine, (worker, _) in zip(placed, batch))
        count += len(batch)
        trained = {}
        for worker, keys in batch:
            for key in keys:
                trained.setdefault(key, set()).add(worker)
        holders.update(trained)
    print(f"{count} samples, {elsewhere} elsewhere")
    sys.exit(elsewhere > 0)


main()
