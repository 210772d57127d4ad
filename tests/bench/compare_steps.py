#!/usr/bin/python3
"""compare_steps - a training step of every model beside PyTorch's, at the same shapes.

  tests/bench/compare_steps.py build/release/tests/bench/lanyard_bench [--quick] [--batches 128,1024] [--dims 16,64,512]
                               [--newest]

Lanyard's side is `lanyard_bench device`: forward, backward, dense and row optimizers (Adagrad), 26
fields, 13 dense features, MLP 256-256-256. PyTorch's (step_reference.py, a process of its own) has the
same models on batches of the same make, with its BLAS told what the CPU is. All on one thread, in
processor time. ratio: of samples/s. floor: what Lanyard's step takes over its matrix products alone
plus its other bytes at copy bandwidth.
PyTorch is that of Debian's python3. --newest: the newest of PyPI beside it, each shape by one after the
other; it is installed into build/torch, its wheel is made for CUDA, and starts with the libraries of
the toolkit in $CUDA_LIBRARIES (/usr/local/cuda/lib64).
"""
import argparse
import json
import os
import subprocess

import newest

HERE = os.path.dirname(os.path.abspath(__file__))
DEBIAN = "/usr/bin/python3"


class PyTorch:
    """One of them, in a process that answers what is asked; version is its first word."""

    def __init__(self, python, environment, seconds):
        self.process = subprocess.Popen([python, os.path.join(HERE, "step_reference.py"), str(seconds)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)
        self.version = self.answer().split("+")[0]

    def answer(self):
        line = self.process.stdout.readline().strip()
        if not line:
            raise SystemExit(f"compare_steps: {self.process.args[0]} ended: does it have torch and numpy?")
        return line

    def samples_per_s(self, name, batch, dim):
        self.process.stdin.write(json.dumps([name, batch, dim]) + "\n")
        self.process.stdin.flush()
        return batch / float(self.answer())

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise SystemExit(f"compare_steps: PyTorch {self.version} failed")


def run_lanyard(program, quick):
    run = subprocess.run([program, "device", "--json", *(["--quick"] if quick else [])],
                         stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(run.stdout)["models"]["rows"]


def compare(rows, rivals):
    print("| batch | dim | step | Lanyard, samples/s | "
          + "".join(f"PyTorch {one.version}, samples/s | ratio | " for one in rivals) + "floor |")
    print("|---" * (5 + 2 * len(rivals)) + "|")
    for row in rows:
        batch, dim, name, own = int(row["batch"]), int(row["dim"]), row["operation"], row["samples/s"]
        print(f"| {batch} | {dim} | {name.replace(' step', '')} | {own:.0f} |", end="", flush=True)
        for one in rivals:
            theirs = one.samples_per_s(name, batch, dim)
            print(f" {theirs:.0f} | {own / theirs:.2f} |", end="", flush=True)
        print(f" {row['ratio']:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--quick", action="store_true", help="one shape, few repeats")
    parser.add_argument("--newest", action="store_true", help="PyTorch from PyPI, too")
    parser.add_argument("--batches", default="128,1024")
    parser.add_argument("--dims", default="16,64,512")
    arguments = parser.parse_args()
    batches = [int(b) for b in arguments.batches.split(",")]
    dims = [int(d) for d in arguments.dims.split(",")]
    seconds = 0.02 if arguments.quick else 0.5
    rivals = [PyTorch(DEBIAN, dict(os.environ), seconds)]
    if arguments.newest:
        rivals.append(PyTorch(*newest.find(), seconds))
    rows = [row for row in run_lanyard(arguments.program, arguments.quick)
            if row["batch"] in batches and row["dim"] in dims]
    compare(rows, rivals)
    for one in rivals:
        one.close()


if __name__ == "__main__":
    main()
