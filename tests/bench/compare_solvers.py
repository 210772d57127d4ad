#!/usr/bin/env python3
"""Holds the exact solvers against scipy and LEMON: equal totals, then times in one run.

    compare_solvers.py BENCH LEMON [--instances N] [--sizes 1024x8,8192x8] [--skip-scipy-from ROWS]
                       [--matrices DIR]

BENCH is solver_bench, LEMON is lemon_transport, both built. Exits non-zero when two totals differ.
scipy.optimize.linear_sum_assignment gets the expanded matrix (one column per place); its time and
LEMON's are without building the matrix or the graph. DIR holds matrices of real batches, made by
`lanyard_bench dispatch --dump-matrices DIR --file ROWS`.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
from scipy.optimize import linear_sum_assignment

COST_MAX = 1 << 28


def write_problem(path, cost, capacity):
    with open(path, "wb") as file:
        np.array(cost.shape, dtype=np.uint32).tofile(file)
        np.asarray(capacity, dtype=np.uint32).tofile(file)
        np.ascontiguousarray(cost, dtype=np.int32).tofile(file)


def read_problem(path):
    values = np.fromfile(path, dtype=np.uint32)
    rows, sinks = int(values[0]), int(values[1])
    cost = values[2 + sinks :].view(np.int32).reshape(rows, sinks)
    return cost, values[2 : 2 + sinks]


def random_cost(rng, rows, sinks):
    kind = rng.integers(5)
    if kind == 0:
        return rng.integers(0, 1_000_000, (rows, sinks))
    if kind == 1:
        return rng.integers(0, rng.integers(1, 5), (rows, sinks))
    if kind == 2:  # ESD's matrix: F T_j + sum of h_o T_o - 2 h_j T_j
        ticks = np.where(np.arange(sinks) % 2, 100, 10)
        shares = rng.dirichlet(np.full(sinks, 0.3), rows)
        owned = np.array([rng.multinomial(26, share) for share in shares])
        return 26 * ticks + (owned @ ticks)[:, None] - 2 * owned * ticks + 2600
    if kind == 3:  # everybody prefers the same sinks
        return np.arange(sinks)[None, :] * 50 + rng.integers(0, 3, (rows, sinks))
    return rng.choice([0, 1, COST_MAX - 1, COST_MAX], (rows, sinks))


def random_capacity(rng, rows, sinks):
    places = rows + int(rng.choice([0, 0, rng.integers(0, rows + 1)]))
    weights = rng.dirichlet(np.full(sinks, 1.0)) * (rng.random(sinks) < 0.8)
    if rng.random() < 0.4 or weights.sum() == 0:
        weights = np.ones(sinks)
    return rng.multinomial(places, weights / weights.sum())


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def scipy_solve(cost, capacity):
    """Total cost and milliseconds."""
    expanded = np.repeat(cost, np.minimum(capacity, len(cost)), axis=1).astype(np.float64)
    start = time.perf_counter()
    rows, columns = linear_sum_assignment(expanded)
    elapsed_ms = (time.perf_counter() - start) * 1e3
    return int(expanded[rows, columns].sum()), elapsed_ms


def check_instances(options, folder):
    matrix, out = os.path.join(folder, "matrix"), os.path.join(folder, "out")
    rng = np.random.default_rng(options.seed)
    for number in range(options.instances):
        rows, sinks = int(rng.integers(1, 250)), int(rng.choice([1, 2, 3, 5, 8, 9, 16, 33, 64]))
        cost, capacity = random_cost(rng, rows, sinks), random_capacity(rng, rows, sinks)
        write_problem(matrix, cost, capacity)
        totals = {"scipy": scipy_solve(cost, capacity)[0]}
        totals["lemon"] = run(options.lemon, matrix)["cost"]
        result = run(options.bench, "--file", matrix, out, "transport", 1)
        sink = np.loadtxt(out, dtype=np.int64, ndmin=1)
        if np.any(np.bincount(sink, minlength=sinks) > capacity):
            sys.exit(f"instance {number}: transport exceeds a capacity")
        if int(cost[np.arange(rows), sink].sum()) != result["cost"]:
            sys.exit(f"instance {number}: transport misreports its cost")
        totals["transport"] = result["cost"]
        if len(set(totals.values())) != 1:
            sys.exit(f"instance {number} ({rows} x {sinks}): totals differ: {totals}")
    print(f"{options.instances} instances: scipy, LEMON and transport agree on every total")


def compare_times(options, name, matrix, out):
    """Times every solver on one problem; the totals have to agree."""
    cost, capacity = read_problem(matrix)
    ours = run(options.bench, "--file", matrix, out, "transport", 51)
    lemon = run(options.lemon, matrix, 5)
    line = {"matrix": name, "rows": len(cost), "sinks": len(capacity)}
    line["transport_ms"] = ours["ms_median"]
    line["lemon_ms"] = lemon["ms_median"]
    line["lemon_ratio"] = round(lemon["ms_median"] / ours["ms_median"], 1)
    totals = {ours["cost"], lemon["cost"]}
    if len(cost) < options.skip_scipy_from:
        total, elapsed_ms = scipy_solve(cost, capacity)
        totals.add(total)
        line["scipy_ms"] = round(elapsed_ms, 1)
        line["scipy_ratio"] = round(elapsed_ms / ours["ms_median"], 1)
    if len(totals) != 1:
        sys.exit(f"{name}: totals differ: {totals}")
    print(json.dumps(line), flush=True)


def compare_all_times(options, folder):
    matrix, out = os.path.join(folder, "matrix"), os.path.join(folder, "out")
    for size in options.sizes.split(",") if options.sizes else []:
        rows, sinks = map(int, size.split("x"))
        run_make = [options.bench, "--make", matrix, str(rows), str(sinks), "1", "esd"]
        subprocess.run(run_make, check=True)
        compare_times(options, "generated", matrix, out)
    for name in sorted(os.listdir(options.matrices)) if options.matrices else []:
        if name.endswith(".matrix"):
            compare_times(options, name, os.path.join(options.matrices, name), out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bench")
    parser.add_argument("lemon")
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--sizes", default="1024x8,8192x8,1024x64,8192x64")
    parser.add_argument("--skip-scipy-from", type=int, default=1 << 30, metavar="ROWS")
    parser.add_argument("--matrices", metavar="DIR", help="also times its *.matrix files")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        check_instances(options, folder)
        compare_all_times(options, folder)


if __name__ == "__main__":
    main()
