#!/usr/bin/python3
"""check_predictions - does tools/read_model.py predict what `lanyard eval` does?

  check_predictions.py MODEL ROWS PREDICTIONS

ROWS: lines as Criteo's, or of a user, an item and a rating. PREDICTIONS: of `eval --predictions`.
Prints the largest difference; status 1 where it is above 1e-6: both are made of 32-bit weights, and
those of `eval` in sums of 32 bits.
"""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
from read_model import read_model  # noqa: E402

BOUND = 1e-6
DENSE, ID_MISSING = 13, (1 << 56) - 1


def main():
    folder, rows, predictions = sys.argv[1:]
    dense, keys = [], []
    with open(rows, encoding="ascii") as file:
        for line in file:
            cells = line.rstrip("\n").split("\t")
            is_criteo = len(cells) > DENSE
            ids = [int(c, 16) if c else ID_MISSING for c in cells[1 + DENSE:]] if is_criteo else \
                [int(c) for c in cells[:2]]
            numbers = [int(c or 0) for c in cells[1:1 + DENSE]] if is_criteo else []
            dense.append(np.log1p(np.maximum(np.array(numbers, np.float64), 0)))
            keys.append([field << 56 | number for field, number in enumerate(ids)])
    ours = read_model(folder).predict(np.array(dense).astype(np.float32), np.array(keys, np.uint64))
    theirs = np.loadtxt(predictions)
    if len(ours) != len(theirs):
        sys.exit(f"{len(ours)} rows, {len(theirs)} predictions")
    worst = np.abs(ours - theirs).max()
    print(f"{len(ours)} predictions from {theirs.min():.4f} to {theirs.max():.4f}, at most {worst:.2g} apart")
    if not worst <= BOUND or theirs.max() - theirs.min() < 0.1:
        sys.exit(f"allowed is {BOUND}, and they must not all be the same")


if __name__ == "__main__":
    main()
