#!/usr/bin/python3
"""compare_training - a whole run of `lanyard up` beside a PyTorch loop of the same model.

  tests/bench/compare_training.py build/lanyard [--file ROWS] [--turns 3]

Wide & Deep on Criteo rows as in configs/criteo.json: 4 workers and their parameter server on this
machine, all processes together, against PyTorch in one process on one thread with its BLAS told
what the CPU is. In turn, so that both see the same machine; medians are printed with their spread.
PyTorch's ids are numbered before its clock starts; Lanyard's clock includes reading, parsing,
planning and moving rows. ROWS: $LANYARD_DATA or ../shared/data holds criteo_kaggle_100k.tsv.zst.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

NAME = "criteo_kaggle_100k.tsv.zst"
HERE = os.path.dirname(os.path.abspath(__file__))


def run_lanyard(program, rows):
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([program, "up", os.path.join(HERE, "../../configs/criteo.json"), "--out", out,
                        "--set", "stream.files=" + rows, "--set", "log.level=warn"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
            return json.load(file)


def run_reference(rows):
    lines = subprocess.run([sys.executable, os.path.join(HERE, "train_reference.py"), rows,
                            "--deep-input", "all"], check=True, stdout=subprocess.PIPE, text=True)
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
    arguments = parser.parse_args()
    if not os.path.exists(arguments.file):
        print(f"skipped: {arguments.file} is not here (set LANYARD_DATA, or --file ROWS)")
        return
    ours, theirs = [], []
    for _ in range(arguments.turns):
        ours.append(run_lanyard(arguments.program, arguments.file))
        theirs.append(run_reference(arguments.file))
    ratio = show("lanyard up, 4 workers", ours) / show("PyTorch, one thread", theirs)
    print(f"ratio {ratio:.2f}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
