#!/usr/bin/python3
"""compare_rates - what a run learns from its first rows on, by optimizer settings.

  tests/bench/compare_rates.py build/release/tests/bench/train_bench [--seeds 5] [--quick] [--markdown]

Each setting differs from the defaults in what it names. Log loss over whole runs, each batch judged
before it is trained on, rows in the order of their files: criteo_kaggle_100k (configs/criteo.json),
movielens_100k (configs/movielens.json), avazu_10k (configs/formats/avazu.json, batches of 64) and
100,000 generated rows (configs/demo.json); others up to 1,024 a batch, which grows
with the samples before it where batch.samples counts. First the defaults, with --seeds
seeds: mean and, in brackets, smallest and largest. Data: $LANYARD_DATA or ../shared/data.
"""
import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SETS = {
    "Criteo": ("configs/criteo.json", "criteo_kaggle_100k.tsv.zst", []),
    "MovieLens": ("configs/movielens.json", "movielens_100k.tsv.zst", []),
    "Avazu": ("configs/formats/avazu.json", "avazu_10k.csv.zst", ["batch.samples_per_worker=64"]),
    "generated": ("configs/demo.json", None, ["stream.samples_max=100000"]),
}
D, R = "optimizer.dense.", "optimizer.rows."
OLD = [D + "learning_rate=0.02", R + "learning_rate=0.02"]
PLAIN = ["stream.dense_scaling=none", "model.base_rate=0.5"]
SETTINGS = [
    ("features as they are, start at 0.5, both rates 0.02", PLAIN + OLD),
    ("start at 0.5, both rates 0.02", PLAIN[1:] + OLD),
    ("both rates 0.02", OLD),
    ("features as they are, start at 0.5", PLAIN),
    ("features as they are", PLAIN[:1]),
    ("start at 0.5", PLAIN[1:]),
] + [(f"dense rate {rate}", [f"{D}learning_rate={rate}"]) for rate in (0.002, 0.003, 0.01, 0.02)] + [
    (f"row rate {rate}", [f"{R}learning_rate={rate}"]) for rate in (0.01, 0.02, 0.05, 0.1)] + [
    ("dense warm-up of 10 batches", [D + "warmup_iterations=10"]),
    ("dense rate 0.01, falling as 1 / sqrt(1 + t/50)",
     [D + "learning_rate=0.01", D + "decay=inverse_sqrt", D + "decay_iterations=50"]),
    ("dense Adam 0.001", [D + "name=adam", D + "epsilon=1e-8", D + "learning_rate=0.001"]),
    ("row Adam 0.003", [R + "name=adam", R + "epsilon=1e-8", R + "learning_rate=0.003"]),
    ("rows row-wise Adagrad", [R + "name=rowwise_adagrad"]),
    ("row FTRL 0.2", [R + "name=ftrl", R + "learning_rate=0.2"]),
    ("dense momentum 0.01", [D + "name=momentum", D + "learning_rate=0.01"]),
    ("row L2 1e-4", [R + "l2=1e-4"]),
    ("dense L2 1e-4", [D + "l2=1e-4"]),
    ("dense gradients clipped at 0.1", [D + "clip_norm=0.1"]),
    ("rows start at 0.001", ["model.init_scale=0.001"]),
    ("rows start at 0.1", ["model.init_scale=0.1"]),
    ("rows of 4 numbers", ["model.embedding_dim=4"]),
    ("rows of 64 numbers", ["model.embedding_dim=64"]),
    ("an MLP of 64, 32", ["model.mlp=[64,32]"]),
    ("an MLP of 8", ["model.mlp=[8]"]),
]


def run(program, name, data, settings, seed):
    config, rows, more = SETS[name]
    command = [program, os.path.join(HERE, "../..", config), *more, *settings, f"seed={seed}"]
    if rows:
        command.append("stream.files=" + os.path.join(data, rows))
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--data", default=os.environ.get("LANYARD_DATA", "../shared/data"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the defaults and what was before, one seed")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/results/learning.md")
    arguments = parser.parse_args()
    names = [name for name, (_, rows, _) in SETS.items()
             if not rows or os.path.exists(os.path.join(arguments.data, rows))]
    for name in SETS.keys() - set(names):
        print(f"skipped {name}: {SETS[name][1]} is not in {arguments.data} (set LANYARD_DATA)")
    line = ("| {} |" + " {} |" * len(names)) if arguments.markdown else \
        ("{:52}" + " {:>25}" * len(names))
    print(line.format("setting", *names))
    if arguments.markdown:
        print("|" + "---|" * (1 + len(names)))
    cells = []
    for name in names:
        losses = [run(arguments.program, name, arguments.data, [], seed)["logloss"]
                  for seed in range(1, 1 + (1 if arguments.quick else arguments.seeds))]
        cells.append(f"{sum(losses) / len(losses):.4f} ({min(losses):.4f}-{max(losses):.4f})")
    print(line.format("the defaults", *cells), flush=True)
    for title, settings in SETTINGS[:1] if arguments.quick else SETTINGS:
        print(line.format(title, *(
            f"{run(arguments.program, name, arguments.data, settings, 1)['logloss']:.4f}"
            for name in names)), flush=True)


if __name__ == "__main__":
    main()
