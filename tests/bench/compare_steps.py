#!/usr/bin/python3
"""compare_steps - a training step of every model beside PyTorch's, at the same shapes.

  tests/bench/compare_steps.py build/lanyard [--quick] [--batches 128,1024] [--dims 16,64,512]
                               [--newest]

Lanyard's side is `lanyard bench device`: forward, backward, dense and row optimizers (Adagrad), 26
fields, 13 dense features, MLP 256-256-256. PyTorch's has the same models on batches of the same
make (half of the fields with 100 ids, half with 100,000; distinct ids found beforehand), with its
BLAS told what the CPU is. Both on one thread, in processor time. ratio: of samples/s. floor: what
Lanyard's step takes over its matrix products alone plus its other bytes at copy bandwidth.
--newest: with the newest PyTorch of PyPI, installed into build/torch, in place of Debian's; its
wheel is made for CUDA, and starts with the libraries of the toolkit in $CUDA_LIBRARIES
(/usr/local/cuda/lib64).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import newest

HERE = os.path.dirname(os.path.abspath(__file__))
if __name__ == "__main__" and "--newest" in sys.argv:
    newest.start_again()
sys.path.insert(0, HERE)
import train_reference as reference  # noqa: E402
import numpy as np  # noqa: E402  (after it: it sets the environment of the BLAS)
import torch  # noqa: E402

MODELS = {"wdl step, deep_input dense": ("wdl", {"deep_input": "dense"}),
          "wdl step, deep_input all": ("wdl", {}), "dfm step": ("dfm", {}),
          "dcn step, cross vector": ("dcn", {}), "dcn step, cross matrix": ("dcn", {"cross": "matrix"}),
          "dlrm step": ("dlrm", {}), "ncf step": ("ncf", {})}


def run_lanyard(program, quick):
    run = subprocess.run([program, "bench", "device", "--json", *(["--quick"] if quick else [])],
                         stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(run.stdout)["models"]["rows"]


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--quick", action="store_true", help="one shape, few repeats")
    parser.add_argument("--newest", action="store_true", help="PyTorch from PyPI")
    parser.add_argument("--batches", default="128,1024")
    parser.add_argument("--dims", default="16,64,512")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    batches = [int(b) for b in arguments.batches.split(",")]
    dims = [int(d) for d in arguments.dims.split(",")]
    print(f"PyTorch {torch.__version__}\n")
    print("| batch | dim | step | Lanyard, samples/s | PyTorch, samples/s | ratio | floor |")
    print("|---|---|---|---|---|---|---|")
    for row in run_lanyard(arguments.program, arguments.quick):
        batch, dim, name = int(row["batch"]), int(row["dim"]), row["operation"]
        if batch not in batches or dim not in dims:
            continue
        theirs = batch / time_step(name, batch, dim, 0.02 if arguments.quick else 0.5)
        print(f"| {batch} | {dim} | {name.replace(' step', '')} | {row['samples/s']:.0f} | {theirs:.0f} "
              f"| {row['samples/s'] / theirs:.2f} | {row['ratio']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
