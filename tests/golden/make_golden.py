#!/usr/bin/env python3
"""Reference dumps for tests/unit/edge_worker/test_model_golden.c: python3 tests/golden/make_golden.py

Every model is written here once more, from its paper, in PyTorch and double precision: inputs,
predictions, loss, all gradients, and parameters after one and three steps of the optimizers. The
numbers are rounded to float32 once, when written. Needs python3-torch (1.13) and python3-numpy.

Format: per array a line "name count", then count little-endian float32.
"""
import os
import numpy as np
import torch

torch.set_default_dtype(torch.float64)
HERE = os.path.dirname(os.path.abspath(__file__))
POOL_SUM, POOL_MEAN = 0, 1
RATE, EPSILON, ACCUMULATOR = 0.05, 1e-8, 0.1
MOMENTUM, BETA1, BETA2 = 0.9, 0.9, 0.999
L1, L2, BETA = 1e-3, 1e-2, 1.0


def f32(a):
    """Doubles that floats can hold, so that both sides start from the same numbers."""
    return np.asarray(a, dtype=np.float32).astype(np.float64)


class Case:
    """Inputs of one micro-batch and the parameters of one model."""

    def __init__(self, name, seed, samples, dense, fields, dim, mlp, pooling=None, share=1.0,
                 label_weights=(1.0,), shares=False, classes=0):
        self.name, self.samples, self.dense_count = name, samples, dense
        self.fields, self.dim, self.mlp, self.pooling = fields, dim, mlp, pooling
        self.random, self.shares = np.random.RandomState(seed), shares
        self.scale = share / samples  # the batch has samples / share samples over all workers
        self.labels = (self.random.rand(samples) < 0.4).astype(np.float64)
        self.dense = f32(self.random.randn(samples, dense))
        self.make_lookups()
        self.rows = f32(0.5 * self.random.randn(self.row_count, dim))
        self.parameters = []  # (name, array) in the order of the block
        self.label_weights, self.weights = label_weights, None
        self.classes, self.outputs = classes, classes or len(label_weights)
        if len(label_weights) > 1:
            self.make_labels(np.random.RandomState(1000 + seed))
        if classes:
            self.labels = np.random.RandomState(2000 + seed).randint(0, classes, samples)

    def make_labels(self, random):
        """Of several labels a third is absent, and samples have weights."""
        shape = (self.samples, len(self.label_weights))
        self.labels = (random.rand(*shape) < 0.4).astype(np.float64)
        self.weights = random.randint(1, 4, self.samples)[:, None] * (random.rand(*shape) < 0.67)

    def make_lookups(self):
        ids, self.bags = [], []
        for _ in range(self.samples):
            for field in range(self.fields):
                size = 1 if self.pooling is None else self.random.randint(0, 4)
                chosen = self.random.choice(6, size=size, replace=False)
                self.bags.append(len(chosen))
                table = 0 if self.shares and field == self.fields - 1 else field
                ids += [(table, int(c)) for c in chosen]
        distinct = {}
        self.lookup_rows = [distinct.setdefault(one, len(distinct)) for one in ids]
        self.row_count = len(distinct)

    def parameter(self, name, *shape, fan_in):
        values = f32(self.random.uniform(-1, 1, shape) / np.sqrt(fan_in))
        self.parameters.append((name, values))

    def output_parameters(self, inputs):
        self.parameter("output.weight", self.outputs, inputs, fan_in=inputs)
        self.parameter("output.bias", self.outputs, fan_in=inputs)

    def output(self, p, x):
        """One logit per sample; of several labels or classes samples x so many."""
        z = x @ p["output.weight"].T + p["output.bias"]
        return z if self.outputs > 1 else z[:, 0]

    def mlp_parameters(self, name, inputs, widths):
        for i, width in enumerate(widths):
            self.parameter(f"{name}.{i}.weight", width, inputs, fan_in=inputs)
            self.parameter(f"{name}.{i}.bias", width, fan_in=inputs)
            inputs = width
        return inputs

    def pooled(self, rows):
        """samples x fields x dim."""
        bag_of = np.repeat(np.arange(len(self.bags)), self.bags)
        out = torch.zeros(len(self.bags), self.dim)
        out = out.index_add(0, torch.tensor(bag_of), rows[torch.tensor(self.lookup_rows)])
        if self.pooling == POOL_MEAN:
            out = out / torch.tensor(np.maximum(self.bags, 1))[:, None]
        return out.view(self.samples, self.fields, self.dim)


class GraphCase(Case):
    """A node, fan_out neighbours, and neighbours of these: all rows of one table, some missing."""

    def make_lookups(self):
        fan_out, distinct = (self.fields - 1) // 2, {}
        self.bags, self.lookup_rows = [], []
        for _ in range(self.samples):
            there = np.concatenate([[1], self.random.randint(0, 4, fan_out) > 0]).astype(int)
            for size in [*there, *self.random.randint(0, 4, fan_out)]:
                chosen = self.random.choice(9, size=size, replace=False)
                self.bags.append(size)
                self.lookup_rows += [distinct.setdefault(int(c), len(distinct)) for c in chosen]
        self.row_count = len(distinct)


def run_mlp(p, name, x, layers):
    for i in range(layers):
        x = torch.relu(x @ p[f"{name}.{i}.weight"].T + p[f"{name}.{i}.bias"])
    return x


def wdl(case, deep_all):
    pooled_count = case.fields * case.dim
    inputs = case.dense_count + (pooled_count if deep_all else 0)
    hidden = case.mlp_parameters("mlp", inputs, case.mlp)
    case.output_parameters(hidden + pooled_count)

    def forward(p, rows):
        dense, flat = torch.tensor(case.dense), case.pooled(rows).flatten(1)
        x = torch.cat([flat, dense], 1) if deep_all else dense
        h = run_mlp(p, "mlp", x, len(case.mlp))
        return case.output(p, torch.cat([h, flat], 1))

    return forward


def dfm(case):
    pooled_count, hidden = case.fields * case.dim, case.mlp[-1]
    inputs = pooled_count + case.dense_count
    case.mlp_parameters("mlp", inputs, case.mlp)
    case.output_parameters(hidden + inputs)

    def forward(p, rows):
        v, dense = case.pooled(rows), torch.tensor(case.dense)
        h = run_mlp(p, "mlp", torch.cat([v.flatten(1), dense], 1), len(case.mlp))
        first = case.output(p, torch.cat([h, v.flatten(1), dense], 1))
        pairs = sum((v[:, a] * v[:, b]).sum(1) for a in range(case.fields) for b in range(a))
        return first + (pairs if first.dim() == 1 else pairs[:, None])

    return forward


def dcn(case, matrix, layers):
    inputs = case.fields * case.dim + case.dense_count
    hidden = case.mlp_parameters("mlp", inputs, case.mlp)
    if matrix:
        for i in range(layers):
            case.parameter(f"cross.{i}.weight", inputs, inputs, fan_in=inputs)
            case.parameter(f"cross.{i}.bias", inputs, fan_in=inputs)
    else:
        case.parameter("cross.bias", layers, inputs, fan_in=inputs)
        case.parameter("cross.weight", layers, inputs, fan_in=inputs)
    case.output_parameters(inputs + hidden)

    def forward(p, rows):
        x0 = torch.cat([case.pooled(rows).flatten(1), torch.tensor(case.dense)], 1)
        h = run_mlp(p, "mlp", x0, len(case.mlp))
        x = x0
        for i in range(layers):
            if matrix:
                x = x0 * (x @ p[f"cross.{i}.weight"].T + p[f"cross.{i}.bias"]) + x
            else:
                x = x0 * (x @ p["cross.weight"][i])[:, None] + p["cross.bias"][i] + x
        return case.output(p, torch.cat([x, h], 1))

    return forward


def dlrm(case, bottom):
    widths = bottom + [case.dim]
    case.mlp_parameters("bottom", case.dense_count, widths)
    pairs = [(a, b) for a in range(case.fields + 1) for b in range(a)]
    hidden = case.mlp_parameters("top", case.dim + len(pairs), case.mlp)
    case.output_parameters(hidden)

    def forward(p, rows):
        d = run_mlp(p, "bottom", torch.tensor(case.dense), len(widths))
        v = torch.cat([case.pooled(rows), d[:, None]], 1)
        products = torch.bmm(v, v.transpose(1, 2))
        meet = torch.stack([products[:, a, b] for a, b in pairs], 1)
        h = run_mlp(p, "top", torch.cat([d, meet], 1), len(case.mlp))
        return case.output(p, h)

    return forward


def ncf(case):
    k = case.dim // 2
    hidden = case.mlp_parameters("mlp", case.dim, case.mlp)
    case.output_parameters(k + hidden)

    def forward(p, rows):
        user, item = case.pooled(rows).unbind(1)
        h = run_mlp(p, "mlp", torch.cat([user[:, k:], item[:, :k]], 1), len(case.mlp))
        gmf = user[:, :k] * item[:, k:]
        return case.output(p, torch.cat([gmf, h], 1))

    return forward


def din(case, widths):
    """The last field is the sequence, in the rows of the first, the target."""
    units = case.mlp_parameters("attention", 3 * case.dim, widths)
    case.parameter("attention.output.weight", 1, units, fan_in=units)
    case.parameter("attention.output.bias", 1, fan_in=units)
    hidden = case.mlp_parameters("mlp", case.fields * case.dim + case.dense_count, case.mlp)
    case.output_parameters(hidden)
    last = case.fields - 1
    at = np.concatenate([[0], np.cumsum(case.bags)])

    def attended(p, rows, i, target):
        bag = i * case.fields + last
        h = rows[torch.tensor(case.lookup_rows[at[bag]:at[bag + 1]], dtype=torch.long)]
        t = target.expand(len(h), -1)
        unit = run_mlp(p, "attention", torch.cat([h, t, h * t], 1), len(widths))
        weights = unit @ p["attention.output.weight"][0] + p["attention.output.bias"]
        return (weights[:, None] * h).sum(0)

    def forward(p, rows):
        v = case.pooled(rows)
        own = torch.stack([attended(p, rows, i, v[i, 0]) for i in range(case.samples)])
        x = torch.cat([v[:, :last].flatten(1), own, torch.tensor(case.dense)], 1)
        return case.output(p, run_mlp(p, "mlp", x, len(case.mlp)))

    return forward


def graphsage(case):
    """Sample by sample, node by node. Neighbours of a neighbour that is missing are nobody's."""
    fan_out = (case.fields - 1) // 2
    width = case.mlp_parameters("inner", 2 * case.dim, case.mlp[:1])
    hidden = case.mlp_parameters("outer", 2 * width, case.mlp[1:])
    case.output_parameters(hidden)
    at = np.concatenate([[0], np.cumsum(case.bags)])

    def mean(vectors, size):
        return torch.stack(vectors).mean(0) if vectors else torch.zeros(size)

    def node(p, own, others):
        x = torch.cat([mean(own, case.dim), mean(others, case.dim)])
        return run_mlp(p, "inner", x, 1)

    def embedded(p, rows, i):
        cells = [[rows[r] for r in case.lookup_rows[at[bag]:at[bag + 1]]]
                 for bag in range(i * case.fields, (i + 1) * case.fields)]
        near = cells[1:fan_out + 1]
        others = [node(p, near[k], cells[1 + fan_out + k]) for k in range(fan_out) if near[k]]
        own = node(p, cells[0], [row for cell in near for row in cell])
        return torch.cat([own, mean(others, width)])

    def forward(p, rows):
        y = torch.stack([embedded(p, rows, i) for i in range(case.samples)])
        return case.output(p, run_mlp(p, "outer", y, len(case.mlp) - 1))

    return forward


class Rowwise:
    """Row-wise Adagrad (as in DLRM) for the rows, the last tensor: one accumulator per row, of the
    mean square. SGD for the dense parameters."""

    def __init__(self, tensors):
        self.dense, self.rows = tensors[:-1], tensors[-1]
        self.squares = torch.full((self.rows.shape[0], 1), ACCUMULATOR)

    def step(self):
        with torch.no_grad():
            for t in self.dense:
                t -= RATE * t.grad
            self.squares += (self.rows.grad ** 2).mean(-1, keepdim=True)
            self.rows -= RATE * self.rows.grad / (torch.sqrt(self.squares) + EPSILON)


class Ftrl:
    """FTRL-proximal (McMahan et al., KDD 2013, Algorithm 1)."""

    def __init__(self, tensors):
        self.tensors = tensors
        self.n = [torch.full_like(t, ACCUMULATOR) for t in tensors]
        self.z = [torch.zeros_like(t) for t in tensors]

    def step(self):
        with torch.no_grad():
            for t, n, z in zip(self.tensors, self.n, self.z):
                square = n + t.grad ** 2
                z += t.grad - (torch.sqrt(square) - torch.sqrt(n)) / RATE * t
                n.copy_(square)
                shrunk = (z - torch.sign(z) * L1) * (torch.abs(z) > L1)
                t.copy_(-shrunk / ((BETA + torch.sqrt(n)) / RATE + L2))


OPTIMIZERS = {
    "sgd": lambda t: torch.optim.SGD(t, lr=RATE),
    "momentum": lambda t: torch.optim.SGD(t, lr=RATE, momentum=MOMENTUM),
    "adagrad": lambda t: torch.optim.Adagrad(
        t, lr=RATE, eps=EPSILON, initial_accumulator_value=ACCUMULATOR),
    "rowwise_adagrad": Rowwise,
    "adam": lambda t: torch.optim.Adam(t, lr=RATE, betas=(BETA1, BETA2), eps=EPSILON),
    "ftrl": Ftrl,
}


def block(parameters):
    return torch.cat([p.reshape(-1) for p in parameters])


def loss_of(case, logits):
    if case.classes:
        return torch.nn.functional.cross_entropy(logits, torch.tensor(case.labels), reduction="sum")
    return torch.nn.functional.binary_cross_entropy_with_logits(
        logits, torch.tensor(case.labels), reduction="sum",
        weight=None if case.weights is None else
        torch.tensor(case.weights * np.array(case.label_weights)))


def train(case, forward, make_optimizer, steps):
    p = {name: torch.tensor(v, requires_grad=True) for name, v in case.parameters}
    rows = torch.tensor(case.rows, requires_grad=True)
    optimizer = make_optimizer(list(p.values()) + [rows]) if make_optimizer else None
    states = []
    for _ in range(steps):
        for t in list(p.values()) + [rows]:
            t.grad = None
        logits = forward(p, rows)
        loss = loss_of(case, logits)
        (loss * case.scale).backward()
        for t in list(p.values()) + [rows]:
            t.grad = torch.zeros_like(t) if t.grad is None else t.grad
        prediction = torch.softmax(logits, 1) if case.classes else torch.sigmoid(logits)
        states.append((prediction, loss, block([t.grad for t in p.values()]), rows.grad))
        if optimizer:
            optimizer.step()
            states[-1] += (block(p.values()).detach().clone(), rows.detach().clone())
    return states


def write(case, forward, extra=(), optimizers=tuple(OPTIMIZERS)):
    labels = case.labels if case.weights is None else case.labels * case.weights  # as a batch has them
    arrays = [("samples", case.samples), ("dense_count", case.dense_count),
              ("fields", case.fields), ("dim", case.dim), ("mlp", case.mlp),
              ("pooling", POOL_SUM if case.pooling is None else case.pooling),
              ("scale", case.scale), *extra, ("labels", labels), ("dense", case.dense),
              ("lookup_rows", case.lookup_rows), ("rows", case.rows)]
    if case.classes:
        arrays.append(("classes", case.classes))
    if case.weights is not None:
        arrays += [("weights", case.weights), ("label_weights", case.label_weights)]
    if case.pooling is not None:
        arrays.append(("bag_offsets", np.concatenate([[0], np.cumsum(case.bags)])))
    arrays += [(name, v) for name, v in case.parameters]
    prediction, loss, dense_gradients, row_gradients = train(case, forward, None, 1)[0]
    arrays += [("predictions", prediction), ("loss_sum", loss),
               ("dense_gradients", dense_gradients), ("row_gradients", row_gradients)]
    for name in optimizers:
        states = train(case, forward, OPTIMIZERS[name], 3)
        for step in (1, 3):
            arrays += [(f"{name}.{step}.dense", states[step - 1][4]),
                       (f"{name}.{step}.rows", states[step - 1][5])]
    path = os.path.join(HERE, case.name + ".golden")
    with open(path, "wb") as out:
        for name, values in arrays:
            values = values.detach().numpy() if torch.is_tensor(values) else values
            values = np.asarray(values, dtype="<f4").reshape(-1)
            out.write(f"{name} {len(values)}\n".encode() + values.tobytes())
    print(path, os.path.getsize(path))


def main():
    case = Case("wdl_dense", 1, samples=24, dense=5, fields=4, dim=8, mlp=[16, 12])
    write(case, wdl(case, False))
    case = Case("wdl_all", 2, samples=23, dense=3, fields=4, dim=7, mlp=[17, 12, 9], share=0.25)
    write(case, wdl(case, True))
    case = Case("wdl_all_mean", 3, samples=16, dense=2, fields=3, dim=16, mlp=[12],
                pooling=POOL_MEAN)
    write(case, wdl(case, True))
    case = Case("wdl_dense_sum", 4, samples=16, dense=2, fields=3, dim=20, mlp=[8],
                pooling=POOL_SUM)
    write(case, wdl(case, False))
    case = Case("dfm", 5, samples=20, dense=3, fields=5, dim=9, mlp=[14, 10], share=0.5)
    write(case, dfm(case))
    case = Case("dcn_vector", 6, samples=20, dense=3, fields=4, dim=6, mlp=[13, 8])
    write(case, dcn(case, False, 3), [("cross_layers", 3), ("cross", 0)])
    case = Case("dcn_matrix", 7, samples=18, dense=2, fields=3, dim=5, mlp=[11], share=0.5)
    write(case, dcn(case, True, 2), [("cross_layers", 2), ("cross", 1)])
    case = Case("dlrm", 8, samples=20, dense=4, fields=5, dim=16, mlp=[18, 9])
    write(case, dlrm(case, [7]), [("mlp_bottom", [7])])
    case = Case("ncf", 9, samples=26, dense=0, fields=2, dim=14, mlp=[12, 6])
    write(case, ncf(case))

    for name, seed, pooling in (("din", 10, POOL_SUM), ("din_mean", 11, POOL_MEAN)):
        case = Case(name, seed, samples=21, dense=2, fields=3, dim=7, mlp=[12, 8], pooling=pooling,
                    share=0.5, shares=True)
        write(case, din(case, [9]), [("attention", [9])])

    def several(name, seed, fields, dim, mlp, dense=3, **more):
        return Case(name, seed, 18, dense, fields, dim, mlp, label_weights=(1.0, 0.25, 3.0), **more)

    case = several("labels_wdl_dense", 21, fields=3, dim=5, mlp=[9, 7])
    write(case, wdl(case, False), optimizers=["sgd"])
    case = several("labels_wdl_all", 22, fields=3, dim=5, mlp=[9, 7], pooling=POOL_MEAN)
    write(case, wdl(case, True), optimizers=["sgd"])
    case = several("labels_dfm", 23, fields=3, dim=5, mlp=[9, 7], share=0.5)
    write(case, dfm(case), optimizers=["sgd"])
    case = several("labels_dcn_vector", 24, fields=3, dim=4, mlp=[9, 7])
    write(case, dcn(case, False, 3), [("cross_layers", 3), ("cross", 0)], ["sgd"])
    case = several("labels_dcn_matrix", 25, fields=3, dim=4, mlp=[9, 7])
    write(case, dcn(case, True, 2), [("cross_layers", 2), ("cross", 1)], ["sgd"])
    case = several("labels_dlrm", 26, fields=3, dim=6, mlp=[9, 7])
    write(case, dlrm(case, [7]), [("mlp_bottom", [7])], ["sgd"])
    case = several("labels_din", 28, fields=3, dim=5, mlp=[9, 7], pooling=POOL_SUM, shares=True)
    write(case, din(case, [6, 5]), [("attention", [6, 5])], ["sgd"])
    case = several("labels_ncf", 27, fields=2, dim=6, mlp=[9, 7], dense=0)
    write(case, ncf(case), optimizers=["sgd"])

    def graph(name, seed, mlp, **others):
        case = GraphCase(name, seed, samples=15, dense=0, fields=7, dim=5, mlp=mlp,
                         pooling=POOL_MEAN, shares=True, **others)
        return case, graphsage(case), [("fan_out", 3)]
    write(*graph("graphsage", 31, [11, 8], share=0.5))
    write(*graph("graphsage_deep", 32, [9, 7, 6], classes=4), ["sgd"])
    write(*graph("labels_graphsage", 33, [9, 7], label_weights=(1.0, 0.5, 2.0)), ["sgd"])

    def classes(name, seed, **others):
        return Case(name, seed, samples=14, dense=2, mlp=[9, 7], classes=5, **others)
    case = classes("classes_wdl_dense", 41, fields=3, dim=4)
    write(case, wdl(case, False))
    case = classes("classes_wdl_all", 42, fields=3, dim=5, pooling=POOL_MEAN, share=0.25)
    write(case, wdl(case, True), optimizers=["sgd"])
    case = classes("classes_dfm", 43, fields=3, dim=5, share=0.5)
    write(case, dfm(case), optimizers=["sgd"])
    case = classes("classes_dcn_vector", 44, fields=3, dim=4)
    write(case, dcn(case, False, 3), [("cross_layers", 3), ("cross", 0)], ["sgd"])
    case = classes("classes_dcn_matrix", 45, fields=3, dim=4)
    write(case, dcn(case, True, 2), [("cross_layers", 2), ("cross", 1)], ["sgd"])
    case = classes("classes_dlrm", 46, fields=3, dim=6)
    write(case, dlrm(case, [7]), [("mlp_bottom", [7])], ["sgd"])
    case = classes("classes_din", 47, fields=3, dim=5, pooling=POOL_SUM, shares=True)
    write(case, din(case, [6, 5]), [("attention", [6, 5])], ["sgd"])


if __name__ == "__main__":
    main()
