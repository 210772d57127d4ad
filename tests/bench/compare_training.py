#!/usr/bin/python3
"""compare_training - a whole run of `lanyard up` beside a PyTorch loop of the same model.

  tests/bench/compare_training.py build/lanyard [--file ROWS] [--turns 3] [--samples N]
                                  [--model wdl] [--dim 16] [--workers 4 | --threads N] [--newest]
                                  [--device cuda]

Criteo rows as in configs/criteo.json: 4 workers and their parameter server on this machine, all
processes together, against PyTorch in one process on one thread with its BLAS told what the CPU is.
--threads N: one worker with N threads against PyTorch with as many. --device cuda: one worker on a
GPU against PyTorch on the same. --newest: PyPI's PyTorch, as in compare_steps. In turn, so that both
see the same machine; medians are printed with their spread. PyTorch's ids are numbered before its
clock starts; Lanyard's clock includes reading, parsing, planning and moving rows. ROWS: $LANYARD_DATA
or ../shared/data holds criteo_kaggle_100k.tsv.zst.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import newest

NAME = "criteo_kaggle_100k.tsv.zst"
HERE = os.path.dirname(os.path.abspath(__file__))


def run_lanyard(arguments, workers):
    keys = [f"stream.files={arguments.file}", f"stream.samples_max={arguments.samples}",
            f"model.name={arguments.model}", f"model.embedding_dim={arguments.dim}",
            f"workers={workers}", f"batch.samples_per_worker={1024 // workers}",
            f"compute.threads={arguments.threads or 1}", f"device={arguments.device}",
            "log.level=warn"]
    if workers == 1:
        keys.append("cache.ratio=1")  # PyTorch has all rows, too
    if arguments.model == "dlrm":
        keys.append(f"model.mlp_bottom=[256,{arguments.dim}]")
    with tempfile.TemporaryDirectory() as out:
        command = [arguments.program, "up", os.path.join(HERE, "../../configs/criteo.json"), "--out", out]
        for key in keys:
            command += ["--set", key]
        run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if run.returncode:
            sys.exit(f"compare_training: {run.stderr.strip()}")
        with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
            return json.load(file)


def run_reference(arguments):
    lines = subprocess.run([sys.executable, os.path.join(HERE, "train_reference.py"), arguments.file,
                            "--deep-input", "all", "--samples", str(arguments.samples),
                            "--model", arguments.model, "--dim", str(arguments.dim),
                            "--threads", str(arguments.threads or 1), "--device", arguments.device],
                           check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(lines.stdout.strip().splitlines()[-1])


def show(name, runs):
    rates = sorted(run["samples_per_s"] for run in runs)
    auc = [run["auc_last_fifth"] for run in runs]
    print(f"{name:28} {statistics.median(rates):9.0f} samples/s "
          f"({rates[0]:.0f} to {rates[-1]:.0f}), AUC of the last fifth {statistics.median(auc):.4f}")
    return statistics.median(rates)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--file", default=os.path.join(
        os.environ.get("LANYARD_DATA", "../shared/data"), NAME))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--samples", type=int, default=0, help="the first so many; 0: all")
    parser.add_argument("--model", choices=["wdl", "dfm", "dlrm"], default="wdl")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--workers", type=int, choices=[1, 2, 4, 8], default=4)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--newest", action="store_true", help="PyTorch from PyPI")
    arguments = parser.parse_args()
    if not os.path.exists(arguments.file):
        print(f"skipped: {arguments.file} is not here (set LANYARD_DATA, or --file ROWS)")
        return
    if arguments.newest:
        newest.start_again(arguments.device == "cuda")
    workers = 1 if arguments.threads or arguments.device == "cuda" else arguments.workers
    ours, theirs = [], []
    for _ in range(arguments.turns):
        ours.append(run_lanyard(arguments, workers))
        theirs.append(run_reference(arguments))
    where = "on a GPU" if arguments.device == "cuda" else f"{arguments.threads or 1} thread(s) each"
    ratio = show(f"lanyard up, {workers} worker(s)", ours) / show("PyTorch", theirs)
    print(f"{arguments.model}, dim {arguments.dim}, {where}: ratio {ratio:.2f}; {os.cpu_count()} cores, "
          f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
