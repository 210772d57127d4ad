#!/usr/bin/env python3
"""step_reference - a training step of each model in PyTorch, timed. compare_steps starts it, once for
every PyTorch that it compares with.

  python3 tests/bench/step_reference.py SECONDS

First it prints the version of PyTorch. Then it reads lines `["dlrm step", 1024, 16]` (step of `lanyard
bench device`, samples, length of a row) from standard input, and answers each by a line: the median of a
step's processor time in seconds, on one thread, over SECONDS of steps and 3 at least. Batches are of one make:
half of the fields have 100 ids, half 100,000, and distinct ids are found beforehand.
Needs torch and numpy.
"""
import argparse
import json
import statistics
import sys
import time

import train_reference as reference
import numpy as np  # after it: it sets the environment of the BLAS
import torch

MODELS = {"wdl step, deep_input dense": ("wdl", {"deep_input": "dense"}),
          "wdl step, deep_input all": ("wdl", {}), "dfm step": ("dfm", {}),
          "dcn step, cross vector": ("dcn", {}), "dcn step, cross matrix": ("dcn", {"cross": "matrix"}),
          "dlrm step": ("dlrm", {}), "ncf step": ("ncf", {})}


def make_batch(samples, fields, dim, slots=30011):
    draw = np.random.default_rng(1)
    if fields == 2:
        numbers = np.arange(samples)
        ids = np.stack([numbers * 2, numbers * 7 % samples * 2 + 1], 1)
    else:
        ids = np.stack([f * 100000 + draw.integers(0, 100 if f % 2 else 100000, samples)
                        for f in range(fields)], 1)
    rows, lookups = np.unique(ids, return_inverse=True)
    places = np.arange(len(rows)) * 7919 % slots
    dense = torch.from_numpy(draw.random((samples, reference.DENSE), np.float32))
    labels = torch.from_numpy((draw.random(samples) < 0.25).astype(np.float32))
    return torch.from_numpy(places), torch.from_numpy(lookups.reshape(samples, -1)), dense, labels


def time_step(name, samples, dim, seconds):
    kind, more = MODELS[name]
    arguments = argparse.Namespace(**{"dim": dim, "mlp": [256] * 3, "mlp_bottom": [256, 64],
                                      "deep_input": "all", "cross": "vector", "seed": 1, "rate": 0.02,
                                      "row_rate": 0.02,
                                      "epsilon": 1e-8, "accumulator": 0.1, "optimizer": "adagrad",
                                      **more})
    model = reference.MODELS[kind](arguments)
    table = reference.Rows(range(30011), arguments)
    optimizer = reference.make_optimizer(model, arguments)
    rows, lookups, x, y = make_batch(samples, 2 if kind == "ncf" else reference.FIELDS, dim)
    loss_of, times = torch.nn.BCEWithLogitsLoss(), []
    while len(times) < 4 or sum(times) < seconds:
        start = time.process_time()
        taken = table.take(rows)
        loss = loss_of(model(torch.nn.functional.embedding(lookups, taken), x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        table.step(rows, taken)
        times.append(time.process_time() - start)
    return statistics.median(times[1:])


def main():
    seconds = float(sys.argv[1])
    torch.set_num_threads(1)
    print(torch.__version__, flush=True)
    for line in sys.stdin:
        print(time_step(*json.loads(line), seconds), flush=True)


if __name__ == "__main__":
    main()
