#!/usr/bin/python3
"""compare_models - does every model learn what a PyTorch loop makes of the same start?

  tests/bench/compare_models.py build/lanyard [--seeds 3] [--models wdl,dfm] [--markdown]

wdl, dfm, dcn and dlrm on criteo_kaggle_100k, ncf on movielens_100k, each with --seeds seeds. Both
sides start from the same weights (functions of the seed, checked bit for bit against a run of
Lanyard first), take the samples in the order of the file in batches of 1,024, and judge each batch
before training on it. What may differ is rounding and its consequences. Fails if the mean AUC over
the last fifth differs by more than 0.003. Data: $LANYARD_DATA or ../shared/data.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../tools")]
BOUND = 0.003
CRITEO = ("criteo_kaggle_100k.tsv.zst", "configs/criteo.json", "256-256-256", [])
MOVIELENS = ("movielens_100k.tsv.zst", "configs/movielens.json", "64-32-16",
             ["--rate", "0.02", "--row-rate", "0.1"])
MODELS = {"wdl": CRITEO, "dfm": CRITEO, "dcn": CRITEO, "dlrm": CRITEO, "ncf": MOVIELENS}


def up(program, model, rows, seed, out, *more):
    widths = "[" + MODELS[model][2].replace("-", ",") + "]"
    sets = [f"model.name={model}", f"model.mlp={widths}", "model.mlp_bottom=[256,64]",
            "workers=4", "batch.samples_per_worker=256",  # batch.samples would begin with smaller ones
            f"seed={seed}", "stream.files=" + rows, "log.level=error", *more]
    command = [program, "up", os.path.join(HERE, "../..", MODELS[model][1]), "--out", out]
    for one in sets:
        command += ["--set", one]
    run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                         check=False)
    if run.returncode:
        sys.exit(f"{' '.join(command)}: {run.stderr}")


def run_lanyard(program, model, rows, seed):
    with tempfile.TemporaryDirectory() as out:
        up(program, model, rows, seed, out)
        with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
            return json.load(file)


def run_reference(model, rows, seed):
    lines = subprocess.run([sys.executable, os.path.join(HERE, "train_reference.py"), rows, "--model",
                            model, "--seed", str(seed), "--mlp", MODELS[model][2],
                            *MODELS[model][3]],
                           check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(lines.stdout.strip().splitlines()[-1])


def check_start(program, model, rows, seed):
    """One batch with a learning rate that changes nothing leaves the initial values."""
    import numpy as np  # pylint: disable=import-outside-toplevel
    import initial_values  # pylint: disable=import-outside-toplevel
    from read_model import read_model  # pylint: disable=import-outside-toplevel
    with tempfile.TemporaryDirectory() as out:
        up(program, model, rows, seed, out, "stream.samples_max=1024",
           "cache.rows=30000", "model.base_rate=0.5", *(f"optimizer.{part}.{key}" for part in ("rows", "dense")
             for key in ("name=sgd", "learning_rate=1e-30")))
        ours = read_model(os.path.join(out, "model"))
    want = initial_values.rows(ours.keys, seed, 0.01, ours.values.shape[1])
    same = np.all(np.abs(want - ours.values) < 1e-25)  # what a step makes of an exact 0
    for number, (name, values) in enumerate(ours.dense.items()):
        fan_in = values.shape[-1] if values.ndim == 2 else ours.dense[
            name.replace("bias", "weight")].shape[-1]
        same &= np.array_equal(values, initial_values.parameter(number, values.shape, fan_in, seed))
    if not same:
        sys.exit(f"{model}: Lanyard starts from other values than initial_values.py says")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--data", default=os.environ.get("LANYARD_DATA", "../shared/data"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--markdown", action="store_true", help="the table of docs/results/models.md")
    arguments = parser.parse_args()
    worst = 0
    line = "| {} | {} | {} | {} | {} |" if arguments.markdown else "{:5} {:>23} {:>23} {:>11} {:>13}"
    print(line.format("model", "Lanyard, by seed", "PyTorch, by seed", "difference", "of log loss"))
    if arguments.markdown:
        print("|---|---|---|---|---|")
    for model in arguments.models.split(","):
        rows = os.path.join(arguments.data, MODELS[model][0])
        if not os.path.exists(rows):
            print(f"skipped {model}: {rows} is not here (set LANYARD_DATA)")
            continue
        check_start(arguments.program, model, rows, 1)
        ours, theirs = [], []
        for seed in range(1, arguments.seeds + 1):
            ours.append(run_lanyard(arguments.program, model, rows, seed))
            theirs.append(run_reference(model, rows, seed))
        mean = {key: sum(a[key] - b[key] for a, b in zip(ours, theirs)) / len(ours)
                for key in ("auc_last_fifth", "logloss_last_fifth")}
        worst = max(worst, abs(mean["auc_last_fifth"]))
        print(line.format(model, *(" ".join(f"{run['auc_last_fifth']:.4f}" for run in runs)
                                   for runs in (ours, theirs)),
                          f"{mean['auc_last_fifth']:+.5f}", f"{mean['logloss_last_fifth']:+.5f}"),
              flush=True)
    if worst > BOUND:
        sys.exit(f"the AUC over the last fifth differs by {worst:.4f}, allowed is {BOUND}")


if __name__ == "__main__":
    main()
