#!/usr/bin/env python3
"""train_reference - the same training loop in PyTorch, for AUC, log loss and samples/s.

  python3 tests/bench/train_reference.py FILE [--deep-input all] [--batch 1024] [--dim 16] ...

FILE holds Criteo rows (label, I1..I13, C1..C26, tab separated; .zst is unpacked with zstd), or with
--model ncf MovieLens rows (user, item, rating, time; the label is rating >= 4). Dense features are
log(1 + max(x, 0)), scaled by mean and deviation of all rows so far as Lanyard's are, rows and
weights start as Lanyard's do for the same --seed, the bias takes the first batch's base rate once that
was predicted, the order of the file is the order of training, metrics are taken on each batch before
training on it. One thread, unless --threads says more, with the BLAS told what the CPU is (Debian's
OpenBLAS 0.3.21 takes new Intel CPUs for old ones); with --device cuda on a GPU, where rows and model
stay, and to which batches go one by one. The distinct ids of every batch are found before the clock
starts, as Lanyard's planner does it outside of the worker's step.
Needs python3-torch and python3-numpy, which nothing else here does.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import time

# Read when PyTorch is loaded: before arguments are.
THREADS = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv[:-1] else "1"
os.environ.setdefault("OMP_NUM_THREADS", THREADS)
os.environ.setdefault("OPENBLAS_NUM_THREADS", THREADS)
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
with open("/proc/cpuinfo", encoding="ascii") as info:
    flags = info.read()
if "avx512vl" in flags:
    os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
elif "avx2" in flags:
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")

import numpy as np  # noqa: E402
import torch  # noqa: E402

import initial_values  # noqa: E402

DENSE, FIELDS = 13, 26


def take_criteo(cells):
    """label, dense features, ids"""
    ids = [int(c, 16) if c else initial_values.ID_MISSING for c in cells[1 + DENSE:]]
    return float(cells[0]), [float(c) if c else 0.0 for c in cells[1:1 + DENSE]], ids


def take_movielens(cells):
    return float(int(cells[2]) >= 4), [], [int(cells[0]), int(cells[1])]


def read(path, samples_max, take):
    """labels, dense, ids (numbered in the order of their first use), keys by that number."""
    command = ["zstd", "-dc", path] if path.endswith(".zst") else ["cat", path]
    labels, dense, ids, numbers = [], [], [], {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as unpack:
        for line in unpack.stdout:
            label, numeric, own = take(line.rstrip("\n").split("\t"))
            labels.append(label)
            dense.append(numeric)
            ids.append([numbers.setdefault(initial_values.key_of(f, c), len(numbers))
                        for f, c in enumerate(own)])
            if len(labels) == samples_max:
                unpack.kill()
                break
    dense = np.log1p(np.maximum(np.array(dense, np.float32), 0))
    return np.array(labels, np.float32), dense, np.array(ids, np.int64), list(numbers)


class Initial:
    """Numbers the parameters in the order in which Lanyard's models declare them."""
    number, seed = 0, 1

    @classmethod
    def fill(cls, *shape, fan_in):
        values = initial_values.parameter(cls.number, shape, fan_in, cls.seed)
        cls.number += 1
        return torch.nn.Parameter(torch.from_numpy(values))


def linear(inputs, outputs):
    layer = torch.nn.Linear(inputs, outputs)
    layer.weight = Initial.fill(outputs, inputs, fan_in=inputs)
    layer.bias = Initial.fill(outputs, fan_in=inputs)
    return layer


def make_mlp(inputs, widths):
    layers = []
    for width in widths:
        layers += [linear(inputs, width), torch.nn.ReLU()]
        inputs = width
    return torch.nn.Sequential(*layers)


class Wdl(torch.nn.Module):
    def __init__(self, dim, widths, deep_input):
        super().__init__()
        self.all = deep_input == "all"
        self.mlp = make_mlp(DENSE + (FIELDS * dim if self.all else 0), widths)
        self.output = linear(widths[-1] + FIELDS * dim, 1)

    def forward(self, embeddings, dense):
        flat = embeddings.flatten(1)
        h = self.mlp(torch.cat([flat, dense], 1) if self.all else dense)
        return self.output(torch.cat([h, flat], 1))[:, 0]


class Dfm(torch.nn.Module):
    def __init__(self, dim, widths):
        super().__init__()
        self.mlp = make_mlp(DENSE + FIELDS * dim, widths)
        self.output = linear(widths[-1] + FIELDS * dim + DENSE, 1)

    def forward(self, embeddings, dense):
        x = torch.cat([embeddings.flatten(1), dense], 1)
        pairs = 0.5 * (embeddings.sum(1).square() - embeddings.square().sum(1)).sum(1)
        return self.output(torch.cat([self.mlp(x), x], 1))[:, 0] + pairs


class Dcn(torch.nn.Module):
    def __init__(self, dim, widths, matrix, layers):
        super().__init__()
        inputs = DENSE + FIELDS * dim
        self.mlp = make_mlp(inputs, widths)
        self.matrix, self.layers = matrix, layers
        if matrix:
            self.cross = torch.nn.ModuleList([linear(inputs, inputs) for _ in range(layers)])
        else:
            self.bias = Initial.fill(layers, inputs, fan_in=inputs)
            self.weight = Initial.fill(layers, inputs, fan_in=inputs)
        self.output = linear(inputs + widths[-1], 1)

    def forward(self, embeddings, dense):
        x0 = torch.cat([embeddings.flatten(1), dense], 1)
        x = x0
        for i in range(self.layers):
            w = self.cross[i](x) if self.matrix else (x @ self.weight[i])[:, None]
            x = torch.addcmul(x, x0, w)
            if not self.matrix:
                x = x + self.bias[i]
        return self.output(torch.cat([x, self.mlp(x0)], 1))[:, 0]


class Dlrm(torch.nn.Module):
    def __init__(self, dim, widths, bottom):
        super().__init__()
        self.bottom = make_mlp(DENSE, bottom + [dim])
        a, b = np.tril_indices(FIELDS + 1, -1)
        self.register_buffer("pairs", torch.from_numpy(a * (FIELDS + 1) + b))
        self.top = make_mlp(dim + len(a), widths)
        self.output = linear(widths[-1], 1)

    def forward(self, embeddings, dense):
        d = self.bottom(dense)
        v = torch.cat([embeddings, d[:, None]], 1)
        products = torch.bmm(v, v.transpose(1, 2)).flatten(1)
        x = torch.cat([d, products[:, self.pairs]], 1)
        return self.output(self.top(x))[:, 0]


class Ncf(torch.nn.Module):
    """Rows: the user's GMF and MLP halves, the item's MLP and GMF halves."""
    def __init__(self, dim, widths):
        super().__init__()
        self.half = dim // 2
        self.mlp = make_mlp(dim, widths)
        self.output = linear(self.half + widths[-1], 1)

    def forward(self, embeddings, _dense):
        k, flat = self.half, embeddings.flatten(1)
        gmf = flat[:, :k] * flat[:, 3 * k:]
        return self.output(torch.cat([gmf, self.mlp(flat[:, k:3 * k])], 1))[:, 0]


MODELS = {
    "ncf": lambda a: Ncf(a.dim, a.mlp),
    "wdl": lambda a: Wdl(a.dim, a.mlp, a.deep_input),
    "dfm": lambda a: Dfm(a.dim, a.mlp),
    "dcn": lambda a: Dcn(a.dim, a.mlp, a.cross == "matrix", 3),
    "dlrm": lambda a: Dlrm(a.dim, a.mlp, a.mlp_bottom),
}


def auc(labels, predictions):
    """Ties count one half."""
    order = np.argsort(predictions, kind="stable")
    _, first, count = np.unique(predictions[order], return_index=True, return_counts=True)
    ranks = np.repeat(first + (count - 1) / 2 + 1, count)
    positive = labels[order] > 0.5
    n = positive.sum()
    return (ranks[positive].sum() - n * (n + 1) / 2) / (n * (len(labels) - n))


def log_loss(labels, predictions):
    p = np.clip(predictions.astype(np.float64), 1e-15, 1 - 1e-15)
    return -np.mean(np.where(labels > 0.5, np.log(p), np.log1p(-p)))


class Scale:
    """stream.dense_scaling "standard" (rt_scale.c), but for its bounds on wild values in what is
    learnt: what this file is run on has none that they would change much."""
    LIMIT = 10

    def __init__(self):
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def __call__(self, dense):
        if not dense.shape[1]:
            return dense
        x = dense.astype(np.float64)
        if self.count and np.any(self.squares):
            deviation = np.sqrt(self.squares / self.count)
            x = np.clip(x, self.mean - self.LIMIT * deviation, self.mean + self.LIMIT * deviation)
        more, mean = len(x), x.mean(0)
        distance, total = mean - self.mean, self.count + more
        self.squares = self.squares + np.square(x - mean).sum(0) + distance**2 * (self.count * more / total)
        self.mean, self.count = self.mean + distance * (more / total), total
        deviation = np.sqrt(self.squares / total)
        factor = np.where(deviation > 0, 1 / np.maximum(deviation, 1e-30), 0).astype(np.float32)
        return np.clip((dense - self.mean.astype(np.float32)) * factor, -self.LIMIT, self.LIMIT)


class Rows:
    """The embedding table with its optimizer; a batch's distinct rows are a leaf of the graph."""

    def __init__(self, keys, arguments):
        self.values = torch.from_numpy(
            initial_values.rows(keys, arguments.seed, 0.01, arguments.dim))
        self.values = self.values.to(getattr(arguments, "device", "cpu"))
        self.epsilon = arguments.epsilon
        self.squares = torch.full_like(self.values, arguments.accumulator)
        self.adagrad, self.rate = arguments.optimizer == "adagrad", arguments.row_rate

    def take(self, rows):
        return self.values[rows].requires_grad_()

    def step(self, rows, taken):
        with torch.no_grad():
            g = taken.grad
            if self.adagrad:
                squares = self.squares[rows].addcmul_(g, g)
                self.squares[rows] = squares
                self.values[rows] = taken.addcdiv(g, squares.sqrt_().add_(self.epsilon), value=-self.rate)
            else:
                self.values[rows] = taken - self.rate * g


def make_optimizer(model, arguments):
    if arguments.optimizer == "adagrad":
        return torch.optim.Adagrad(model.parameters(), lr=arguments.rate, eps=arguments.epsilon,
                                   initial_accumulator_value=arguments.accumulator)
    return torch.optim.SGD(model.parameters(), lr=arguments.rate)


def train(arguments):
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    take = take_movielens if arguments.model == "ncf" else take_criteo
    labels, dense, ids, keys = read(arguments.file, arguments.samples, take)
    Initial.seed = arguments.seed
    model = MODELS[arguments.model](arguments).to(arguments.device)
    table, optimizer = Rows(keys, arguments), make_optimizer(model, arguments)
    batches, scale = [], Scale()
    for at in range(0, len(labels), arguments.batch):
        end = at + arguments.batch
        rows, lookups = np.unique(ids[at:end], return_inverse=True)
        batches.append((torch.from_numpy(rows), torch.from_numpy(lookups.reshape(len(labels[at:end]), -1)),
                        torch.from_numpy(scale(dense[at:end])), torch.from_numpy(labels[at:end])))
    loss_of = torch.nn.BCEWithLogitsLoss()
    predictions = []
    start, cpu_start = time.perf_counter(), time.process_time()
    for batch in batches:
        rows, lookups, x, y = (part.to(arguments.device) for part in batch)
        taken = table.take(rows)
        logits = model(torch.nn.functional.embedding(lookups, taken), x)
        predictions.append(torch.sigmoid(logits.detach()))
        if len(predictions) == 1:
            positives = float(y.sum())
            with torch.no_grad():
                model.output.bias += math.log((positives + 0.5) / (len(y) - positives + 0.5))
            logits = model(torch.nn.functional.embedding(lookups, taken), x)
        loss = loss_of(logits, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        table.step(rows, taken)
    predictions = torch.cat(predictions).cpu().numpy()  # a GPU has done all of it then
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    last = len(labels) * 4 // 5
    return {"model": arguments.model, "batch": arguments.batch, "dim": arguments.dim,
            "samples": len(labels), "samples_per_s": round(len(labels) / seconds),
            "samples_per_cpu_s": round(len(labels) / cpu_seconds),  # on a busy machine
            "auc": auc(labels, predictions), "logloss": log_loss(labels, predictions),
            "auc_last_fifth": auc(labels[last:], predictions[last:]),
            "logloss_last_fifth": log_loss(labels[last:], predictions[last:])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--model", choices=MODELS, default="wdl")
    parser.add_argument("--deep-input", choices=["dense", "all"], default="all")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--mlp", type=lambda t: [int(w) for w in t.split("-")],
                        default=[256, 256, 256], help="as in 256-256-256")
    parser.add_argument("--mlp-bottom", type=lambda t: [int(w) for w in t.split("-")],
                        default=[256, 64], help="dlrm")
    parser.add_argument("--cross", choices=["vector", "matrix"], default="vector", help="dcn")
    parser.add_argument("--optimizer", choices=["adagrad", "sgd"], default="adagrad")
    parser.add_argument("--rate", type=float, default=0.005, help="of dense weights")
    parser.add_argument("--row-rate", type=float, default=0.03)
    parser.add_argument("--epsilon", type=float, default=1e-10, help="adagrad")
    parser.add_argument("--accumulator", type=float, default=0.0)
    parser.add_argument("--samples", type=int, default=0, help="stop after so many; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    json.dump(train(parser.parse_args()), sys.stdout)
    print()


if __name__ == "__main__":
    main()
