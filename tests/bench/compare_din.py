#!/usr/bin/python3
"""compare_din - din beside the same model in a PyTorch loop, on MovieLens rows with histories.

  tests/bench/compare_din.py build/lanyard [--file u.data] [--mlp 64-32] [--attention 36]

Both begin with the same values (initial_values.py), train the rows once in the order of their times,
4 workers x 256 samples to a batch, Adagrad, and predict every batch before they train it. Histories are
those of tools/movielens_history.py. Status 1 where the AUC of the last fifth differs by 0.003 or more.
u.data: $LANYARD_DATA or ../shared/data holds movielens_100k.tsv.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

from train_reference import Initial, Rows, auc, linear, log_loss, make_mlp, np, torch
import initial_values

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(HERE, "../..")
BATCH, ITEMS, BOUND = 4 * 256, 20, 0.003
EMPTY = -1  # a place in a history that is shorter


class Din(torch.nn.Module):
    """Fields: user, item, history."""

    def __init__(self, dim, mlp, attention):
        super().__init__()
        self.unit = make_mlp(3 * dim, attention)
        self.weight = linear(attention[-1], 1)
        self.mlp = make_mlp(3 * dim, mlp)
        self.output = linear(mlp[-1], 1)

    def forward(self, user, item, history, there):
        t = item[:, None].expand_as(history)
        weights = self.weight(self.unit(torch.cat([history, t, history * t], 2))) * there[:, :, None]
        return self.output(self.mlp(torch.cat([user, item, (weights * history).sum(1)], 1)))[:, 0]


def read(path):
    """labels, lookups (samples x user, item, ITEMS of history), keys of rows by number."""
    numbers, labels, lookups = {}, [], []

    def number(table, cell):
        return numbers.setdefault(initial_values.key_of(table, int(cell)), len(numbers))

    with open(path, encoding="ascii") as file:
        for line in file:
            user, item, history, rating, _ = line.rstrip("\n").split("\t")
            liked = [number(1, one) for one in history.split("|")] if history else []
            labels.append(float(int(rating) >= 4))
            lookups.append([number(0, user), number(1, item)] + liked + [EMPTY] * (ITEMS - len(liked)))
    return np.array(labels, np.float32), np.array(lookups, np.int64), list(numbers)


def train(path, arguments):
    torch.set_num_threads(1)
    labels, lookups, keys = read(path)
    model = Din(arguments.dim, arguments.mlp, arguments.attention)
    arguments.seed, arguments.epsilon, arguments.accumulator = 1, 1e-10, 0.0
    arguments.optimizer, arguments.row_rate = "adagrad", 0.03
    table = Rows(keys, arguments)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.005, eps=1e-10)
    loss_of, predictions = torch.nn.BCEWithLogitsLoss(), []
    for at in range(0, len(labels), BATCH):
        y, own = torch.from_numpy(labels[at:at + BATCH]), lookups[at:at + BATCH]
        rows, places = np.unique(own, return_inverse=True)
        places = torch.from_numpy(places.reshape(own.shape))
        taken = table.take(torch.from_numpy(rows))  # of EMPTY the last row, which nothing reaches
        there = torch.from_numpy((own[:, 2:] != EMPTY).astype(np.float32))

        def logits():
            v = torch.nn.functional.embedding(places, taken)
            return model(v[:, 0], v[:, 1], v[:, 2:] * there[:, :, None], there)
        z = logits()
        predictions.append(torch.sigmoid(z.detach()).numpy())
        if at == 0:
            with torch.no_grad():
                model.output.bias += math.log((float(y.sum()) + 0.5) / (len(y) - float(y.sum()) + 0.5))
            z = logits()
        optimizer.zero_grad(set_to_none=True)
        loss_of(z, y).backward()
        optimizer.step()
        real = rows != EMPTY
        kept = taken.detach()[real].requires_grad_()
        kept.grad = taken.grad[real]
        table.step(torch.from_numpy(rows[real]), kept)
    p, last = np.concatenate(predictions), len(labels) * 4 // 5
    return {"auc": auc(labels, p), "logloss": log_loss(labels, p),
            "auc_last_fifth": auc(labels[last:], p[last:]),
            "logloss_last_fifth": log_loss(labels[last:], p[last:])}


def run_lanyard(path, folder, arguments):
    sets = {"stream.files": path, "workers": 4, "batch.samples_per_worker": BATCH // 4,
            "model.name": "din", "model.sequence": "history", "model.target": "item",
            "model.embedding_dim": arguments.dim, "model.mlp": arguments.mlp,
            "model.attention": arguments.attention, "cache.rows": 10000, "log.level": "warn"}
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([arguments.program, "up", os.path.join(TREE, "configs/formats/movielens_history.json"),
                    "--out", folder, *words], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--file", default=os.path.join(
        os.environ.get("LANYARD_DATA", "../shared/data"), "movielens_100k.tsv"))
    parser.add_argument("--dim", type=int, default=16)
    for name, widths in (("mlp", [64, 32]), ("attention", [36])):
        parser.add_argument(f"--{name}", type=lambda t: [int(w) for w in t.split("-")], default=widths)
    arguments = parser.parse_args()
    if not os.path.exists(arguments.file):
        print(f"skipped: {arguments.file} is not here (set LANYARD_DATA, or --file u.data)")
        return
    Initial.seed = 1
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "history.tsv")
        with open(path, "w", encoding="ascii") as out:
            subprocess.run([os.path.join(TREE, "tools/movielens_history.py"), arguments.file, "--items",
                            str(ITEMS)], check=True, stdout=out)
        runs = {"lanyard up, 4 workers": run_lanyard(path, folder, arguments), "PyTorch": train(path, arguments)}
    for name, run in runs.items():
        print(f"{name:22} AUC {run['auc']:.4f}, of the last fifth {run['auc_last_fifth']:.4f}; log loss "
              f"{run['logloss']:.4f}, {run['logloss_last_fifth']:.4f}")
    ours, theirs = (run["auc_last_fifth"] for run in runs.values())
    if abs(ours - theirs) >= BOUND:
        sys.exit(f"they differ by {abs(ours - theirs):.4f}, expected less than {BOUND}")


if __name__ == "__main__":
    main()
