#!/usr/bin/python3
"""compare_graph - graphsage beside the same model in a PyTorch loop, on a graph that is made up.

  tests/bench/compare_graph.py build/lanyard [--nodes 3000] [--classes 7] [--epochs 4] [--noise 0.1]

The graph is a stochastic block model: nodes of --classes blocks, of each --inside edges to nodes of its
own block and --outside to any; of a share --noise the label is another one. tools/graph_samples.py makes
samples of it. Both begin with the same values (initial_values.py), train the same rows in the same
batches of 2 workers x 128 samples, Adagrad, and judge nodes that were kept apart. Status 1 where the
accuracies differ by 0.005 or more.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from train_reference import Initial, Rows, linear, make_mlp, np, torch
import initial_values

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(HERE, "../..")
BATCH, BOUND, EMPTY = 2 * 128, 0.005, -1
CLIP = 1e-7  # of probabilities, as the metrics have it


def make_graph(folder, arguments):
    """Paths of edges and labels."""
    rng = random.Random(arguments.seed)
    blocks = [rng.randrange(arguments.classes) for _ in range(arguments.nodes)]
    members = [[n for n, block in enumerate(blocks) if block == c] for c in range(arguments.classes)]
    paths = [os.path.join(folder, name) for name in ("edges.csv", "labels.csv")]
    with open(paths[0], "w", encoding="ascii") as out:
        for node, block in enumerate(blocks):
            others = [rng.choice(members[block]) for _ in range(arguments.inside)]
            others += [rng.randrange(arguments.nodes) for _ in range(arguments.outside)]
            out.writelines(f"{node},{other}\n" for other in others if other != node)
    with open(paths[1], "w", encoding="ascii") as out:
        for node, block in enumerate(blocks):
            noisy = rng.random() < arguments.noise
            out.write(f"{node},{rng.randrange(arguments.classes) if noisy else block}\n")
    return paths


class Sage(torch.nn.Module):
    def __init__(self, dim, mlp, classes):
        super().__init__()
        self.inner = make_mlp(2 * dim, mlp[:1])
        self.outer = make_mlp(2 * mlp[0], mlp[1:])
        self.output = linear(mlp[-1], classes)

    @staticmethod
    def mean(vectors, there):
        """Over the last but one dimension, of those that are there; of none zeros."""
        total = (vectors * there[..., None]).sum(-2)
        return total / there.sum(-1, keepdim=True).clamp(min=1)

    def forward(self, node, near, far, near_there, far_there):
        own = self.inner(torch.cat([node, self.mean(near, near_there)], 1))
        others = self.inner(torch.cat([near, self.mean(far, far_there)], 2))
        return self.output(self.outer(torch.cat([own, self.mean(others, near_there)], 1)))


class Samples:
    """Rows by number; EMPTY where a neighbour is missing."""

    def __init__(self, path, arguments, numbers):
        fan_out, second, labels, cells = arguments.fan_out, arguments.second, [], []

        def number(cell):
            if not cell:
                return EMPTY
            return numbers.setdefault(initial_values.key_of(0, int(cell)), len(numbers))
        with open(path, encoding="ascii") as file:
            for line in file:
                label, node, *rest = line.rstrip("\n").split(",")
                labels.append(int(label))
                own = [number(node)] + [number(cell) for cell in rest[:fan_out]]
                for cell in rest[fan_out:]:
                    many = [number(one) for one in cell.split("|")]
                    own += many + [EMPTY] * (second - len(many))
                cells.append(own)
        self.labels, self.lookups = np.array(labels, np.int64), np.array(cells, np.int64)
        self.fan_out, self.second = fan_out, second

    def batches(self):
        for at in range(0, len(self.labels), BATCH):
            yield torch.from_numpy(self.labels[at:at + BATCH]), self.lookups[at:at + BATCH]

    def logits(self, model, places, own, taken):
        v, there = torch.nn.functional.embedding(places, taken), torch.from_numpy((own != EMPTY).astype(np.float32))
        near, shape = slice(1, 1 + self.fan_out), (len(own), self.fan_out, self.second)
        return model(v[:, 0], v[:, near], v[:, near.stop:].reshape(*shape, -1), there[:, near],
                     there[:, near.stop:].reshape(shape))


def train(folder, arguments):
    torch.set_num_threads(1)
    numbers = {}
    seen, kept = (Samples(os.path.join(folder, name), arguments, numbers) for name in ("train.csv", "test.csv"))
    model = Sage(arguments.dim, arguments.mlp, arguments.classes)
    arguments.epsilon, arguments.accumulator = 1e-10, 0.0
    arguments.optimizer, arguments.row_rate = "adagrad", arguments.rates[0]
    table = Rows(list(numbers), arguments)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=arguments.rates[1], eps=1e-10)
    loss_of, right, loss_sum = torch.nn.CrossEntropyLoss(), 0, 0.0
    for y, own in seen.batches():
        rows, places = np.unique(own, return_inverse=True)
        taken = table.take(torch.from_numpy(rows))  # of EMPTY the last row, which nothing reaches
        loss = loss_of(seen.logits(model, torch.from_numpy(places.reshape(own.shape)), own, taken), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        real = rows != EMPTY
        stepped = taken.detach()[real].requires_grad_()
        stepped.grad = taken.grad[real]
        table.step(torch.from_numpy(rows[real]), stepped)
    with torch.no_grad():
        for y, own in kept.batches():
            rows, places = np.unique(own, return_inverse=True)
            z = kept.logits(model, torch.from_numpy(places.reshape(own.shape)), own,
                            table.take(torch.from_numpy(rows)))
            right += int((z.argmax(1) == y).sum())
            own = torch.softmax(z, 1)[torch.arange(len(y)), y].clamp(min=CLIP)
            loss_sum -= float(torch.log(own).sum())
    return {"accuracy": right / len(kept.labels), "logloss": loss_sum / len(kept.labels)}


def run_lanyard(folder, arguments):
    config = os.path.join(folder, "run.json")
    with open(config, "w", encoding="utf-8") as file:
        json.dump({"include": os.path.join(folder, "graph.json"), "workers": 2, "seed": arguments.seed,
                   "batch": {"samples_per_worker": BATCH // 2}, "cache": {"rows": 20000},
                   "log": {"level": "warn"},
                   "model": {"embedding_dim": arguments.dim, "mlp": arguments.mlp},
                   "optimizer": {"rows": {"name": "adagrad", "learning_rate": arguments.rates[0]},
                                 "dense": {"name": "adagrad", "learning_rate": arguments.rates[1]}}}, file)
    out = os.path.join(folder, "out")
    subprocess.run([arguments.program, "up", config, "--out", out], check=True, stdout=subprocess.DEVNULL)
    files = "stream.files=" + os.path.join(folder, "test.csv")
    answer = subprocess.run([arguments.program, "eval", os.path.join(out, "model"), "--json", "--set", files],
                            check=True, stdout=subprocess.PIPE)
    return json.loads(answer.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    for name, default in (("nodes", 3000), ("classes", 7), ("epochs", 4), ("inside", 5), ("outside", 3),
                          ("fan-out", 6), ("second", 5), ("dim", 16), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--mlp", type=lambda t: [int(w) for w in t.split("-")], default=[64, 32])
    parser.add_argument("--rates", type=float, nargs=2, default=[0.05, 0.02], metavar=("ROWS", "DENSE"))
    arguments = parser.parse_args()
    Initial.seed = arguments.seed
    with tempfile.TemporaryDirectory() as folder:
        paths = make_graph(folder, arguments)
        subprocess.run([os.path.join(TREE, "tools/graph_samples.py"), *paths, "--out", folder,
                        "--fan-out", str(arguments.fan_out), "--second", str(arguments.second),
                        "--epochs", str(arguments.epochs), "--test-share", "0.3",
                        "--seed", str(arguments.seed)], check=True)
        runs = {"lanyard up, 2 workers": run_lanyard(folder, arguments), "PyTorch": train(folder, arguments)}
    for name, run in runs.items():
        print(f"{name:22} accuracy {run['accuracy']:.4f}, log loss {run['logloss']:.4f}")
    ours, theirs = (run["accuracy"] for run in runs.values())
    if abs(ours - theirs) >= BOUND:
        sys.exit(f"they differ by {abs(ours - theirs):.4f}, expected less than {BOUND}")


if __name__ == "__main__":
    main()
