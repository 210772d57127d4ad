#!/usr/bin/python3
"""graph_samples - samples for the model graphsage, from a graph's edges and its nodes' classes

  tools/graph_samples.py EDGES LABELS --out FOLDER [--fan-out 10] [--second 10] [--epochs 1]
                         [--test-share 0.2] [--directed] [--seed 1]

EDGES has lines `a,b` (or with spaces or tabs between): a node and a neighbour of it; without
--directed each is the other's. LABELS has lines `node,class`: whole numbers, classes from 0; nodes
without a line are neighbours only. Lines that begin with # are passed over.

Of every node with a class a share is kept apart: FOLDER/test.csv has each of them once,
FOLDER/train.csv the others, once for every epoch, in a new order and with newly drawn neighbours. A
line is the class, the node, so many columns of neighbours as --fan-out, and for each of these its own
neighbours, at most --second, in one cell, divided by |. Neighbours are drawn without replacement; who
has fewer leaves cells empty. FOLDER/graph.json is the configuration that reads it, to `include`:

  {"include": "FOLDER/graph.json", "model": {"embedding_dim": 16, "mlp": [64, 64]}}
"""
import argparse
import json
import os
import random
import sys

FAN_OUT_MAX, SECOND_MAX, CLASSES_MAX = 32, 1024, 1024  # of model.fan_out, values_max, classes


def pairs(path):
    """The two whole numbers of every line."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            cells = line.replace(",", " ").split()
            if not cells or cells[0].startswith("#"):
                continue
            try:
                first, second = (int(cell) for cell in cells)
            except ValueError:
                sys.exit(f"{path}:{number}: expected two whole numbers, found {line.rstrip()!r}")
            if first < 0 or second < 0:
                sys.exit(f"{path}:{number}: numbers are from 0, found {line.rstrip()!r}")
            yield first, second


def read_graph(edges, is_directed):
    """Neighbours of every node, each once, in ascending order."""
    near = {}
    for a, b in pairs(edges):
        near.setdefault(a, set()).add(b)
        if not is_directed:
            near.setdefault(b, set()).add(a)
    return {node: sorted(own) for node, own in near.items()}


def draw(rng, near, node, most):
    own = near.get(node, [])
    return rng.sample(own, min(most, len(own)))


def sample(rng, near, node, label, arguments):
    first = draw(rng, near, node, arguments.fan_out)
    second = ["|".join(map(str, draw(rng, near, one, arguments.second))) for one in first]
    missing = [""] * (arguments.fan_out - len(first))
    return ",".join([str(label), str(node), *map(str, first), *missing, *second, *missing])


def configuration(folder, class_count, arguments):
    numbers = range(1, arguments.fan_out + 1)
    columns = [{"name": "class", "kind": "label", "classes": class_count},
               {"name": "node", "kind": "categorical", "id": "number"}]
    columns += [{"name": f"near{k}", "kind": "categorical", "id": "number"} for k in numbers]
    columns += [{"name": f"far{k}", "kind": "multi", "id": "number", "separator": "|",
                 "values_max": arguments.second} for k in numbers]
    return {"stream": {"format": "table", "files": [os.path.abspath(os.path.join(folder, "train.csv"))],
                       "tables": [f"{column['name']}=node" for column in columns[2:]],
                       "table": {"delimiter": ",", "header": False, "columns": columns}},
            "model": {"name": "graphsage", "fan_out": arguments.fan_out, "pooling": "mean"}}


def write(path, lines):
    with open(path, "w", encoding="ascii") as file:
        file.writelines(line + "\n" for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=__doc__[__doc__.index("EDGES"):],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("edges", metavar="EDGES")
    parser.add_argument("labels", metavar="LABELS")
    parser.add_argument("--out", required=True, metavar="FOLDER")
    for name, default in (("fan-out", 10), ("second", 10), ("epochs", 1), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--test-share", type=float, default=0.2)
    parser.add_argument("--directed", action="store_true")
    arguments = parser.parse_args()
    for name, value, most in (("--fan-out", arguments.fan_out, FAN_OUT_MAX),
                              ("--second", arguments.second, SECOND_MAX), ("--epochs", arguments.epochs, 10**6)):
        if not 1 <= value <= most:
            parser.error(f"{name}: {value}, expected 1 to {most}")
    if not 0 <= arguments.test_share < 1:
        parser.error(f"--test-share: {arguments.test_share}, expected a share below 1")
    near, label_of = read_graph(arguments.edges, arguments.directed), dict(pairs(arguments.labels))
    if not label_of:
        sys.exit(f"{arguments.labels}: no node has a class")
    class_count = max(2, max(label_of.values()) + 1)
    if class_count > CLASSES_MAX:
        sys.exit(f"{arguments.labels}: class {class_count - 1}, expected at most {CLASSES_MAX - 1}")
    rng, nodes = random.Random(arguments.seed), sorted(label_of)
    rng.shuffle(nodes)
    kept = int(len(nodes) * arguments.test_share)
    test, train = nodes[:kept], nodes[kept:]
    os.makedirs(arguments.out, exist_ok=True)

    def lines(chosen):
        return (sample(rng, near, node, label_of[node], arguments) for node in chosen)
    write(os.path.join(arguments.out, "test.csv"), lines(test))
    write(os.path.join(arguments.out, "train.csv"),
          (line for _ in range(arguments.epochs) for line in lines(rng.sample(train, len(train)))))
    with open(os.path.join(arguments.out, "graph.json"), "w", encoding="utf-8") as file:
        json.dump(configuration(arguments.out, class_count, arguments), file, indent=1)
    print(f"{len(near)} nodes with neighbours, {class_count} classes, {len(train)} nodes x {arguments.epochs} "
          f"to train, {len(test)} to judge")


if __name__ == "__main__":
    main()
