#!/usr/bin/env python3
"""How well does a run learn with nothing but its columns said?

    compare_learning.py PROGRAM [--data DIR] [--rows N] [--workers 1,4]
    compare_learning.py PROGRAM --crosses [--data DIR] [--rows N] [--seeds 3]

Log loss over whole runs and over their last fifth, each batch judged before it is trained on, rows
in time order: the first 100,000 of Criteo, MovieLens sorted by time, Avazu (DIR, ../shared/data),
and two files that are made up: labels that are rarely 1, and users who come in sessions. Beside it
FTRL-Proximal in this file, a step after every row, and Vowpal Wabbit where its package is
installed (pip install vowpalwabbit). Prints a table in Markdown.

--crosses: what `lanyard crosses` proposes for each set, and the losses of models with and without
it, the mean of some seeds. Two more sets are made up: of 200 x 200 pairs of values each moves the
log-odds by 1.5, up or down. In "pairs" every pair has a sign of its own; in "kinds" it is the
product of the signs of the two values.
"""
import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FORMATS = os.path.join(HERE, "../../configs/formats")


def unpacked(path):
    result = subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE, text=True)
    return result.stdout.splitlines()


def criteo(data):
    rows = unpacked(os.path.join(data, "criteo_kaggle_100k.tsv.zst"))
    return rows, {"stream": {"format": "criteo"}}, lambda cells: (
        float(cells[0]), ["%d:%s" % (i, bucket(c) if i < 14 else c) for i, c in enumerate(cells) if i])


def movielens(data):
    rows = unpacked(os.path.join(data, "movielens_100k.tsv.zst"))
    rows.sort(key=lambda row: int(row.split("\t")[3]))
    return rows, {"include": os.path.join(FORMATS, "movielens.json")}, lambda cells: (
        float(int(cells[2]) >= 4), ["u" + cells[0], "i" + cells[1]])


def avazu(data):
    rows = unpacked(os.path.join(data, "avazu_10k.csv.zst"))
    return rows, {"include": os.path.join(FORMATS, "avazu.json")}, lambda cells: (
        float(cells[1]), ["%d:%s" % (i, c) for i, c in enumerate(cells) if i > 1])


def made_up(rate, session):
    draw = random.Random(5)
    taste = [draw.gauss(0, 1) for _ in range(3000)]
    worth = [draw.gauss(0, 1) for _ in range(500)]
    rows, user = [], 0
    for i in range(60000):
        if i % session == 0:
            user = (i // 200 + draw.randrange(1000)) % len(taste) # who comes changes with time
        item = int(len(worth) * draw.random() ** 2)
        odds = math.log(rate / (1 - rate)) + taste[user] + worth[item]
        rows.append("%d,%d,%d" % (draw.random() < 1 / (1 + math.exp(-odds)), user, item))
    columns = [{"name": "y", "kind": "label"}, {"name": "user", "kind": "categorical"},
               {"name": "item", "kind": "categorical"}]
    config = {"stream": {"format": "table", "table": {"delimiter": ",", "columns": columns}}}
    return rows, config, lambda cells: (float(cells[0]), ["u" + cells[1], "i" + cells[2]])


def crossed(of_kinds):
    draw = random.Random(3)
    sizes = [3, 8, 200, 50, 100, 300, 12, 200]
    own = [[draw.gauss(0, 0.35) for _ in range(size)] for size in sizes]
    signs = [[draw.choice((-1, 1)) for _ in range(200)] for _ in range(2)]
    pairs, rows = {}, []
    for _ in range(100000):
        values = [int(size * draw.random() ** 1.5) for size in sizes]
        both = values[2], values[7]
        if of_kinds:
            sign = signs[0][both[0]] * signs[1][both[1]]
        else:
            sign = pairs.setdefault(both, draw.choice((-1, 1)))
        odds = sum(of[value] for of, value in zip(own, values)) - 1 + 1.5 * sign
        rows.append("%d,%s" % (draw.random() < 1 / (1 + math.exp(-odds)), ",".join(map(str, values))))
    columns = [{"name": "y", "kind": "label"}] + [
        {"name": "c%d" % i, "kind": "categorical"} for i in range(len(sizes))]
    return rows, {"stream": {"format": "table", "table": {"delimiter": ",", "columns": columns}}}, None


SETS = {"Criteo": criteo, "MovieLens": movielens, "Avazu": avazu,
        "rare": lambda data: made_up(0.00075, 1), "sessions": lambda data: made_up(0.3, 30)}


def bucket(cell):
    return str(int(math.log(float(cell) + 1) ** 2)) if cell and float(cell) > 0 else cell


def loss_of(label, p):
    p = min(max(p, 1e-7), 1 - 1e-7)
    return -math.log(p if label > 0 else 1 - p)


def judged(losses):
    last = losses[len(losses) * 4 // 5:]
    return sum(losses) / len(losses), sum(last) / len(last)


def ftrl(samples, alpha):
    """McMahan et al., KDD 2013, Algorithm 1, with a bias; no penalties."""
    n, z, losses = {}, {}, []
    for label, keys in samples:
        keys = keys + ["bias"]
        w = [-z.get(k, 0.0) * alpha / (1 + math.sqrt(n.get(k, 0.0))) for k in keys]
        p = 1 / (1 + math.exp(-max(-30, min(30, sum(w)))))
        losses.append(loss_of(label, p))
        g = p - label
        for k, value in zip(keys, w):
            before = n.get(k, 0.0)
            n[k] = before + g * g
            z[k] = z.get(k, 0.0) + g - (math.sqrt(n[k]) - math.sqrt(before)) / alpha * value
    return judged(losses)


def vowpal(samples, arguments):
    from vowpalwabbit import Workspace
    model = Workspace("--quiet --loss_function logistic --link logistic -b 22 " + arguments)
    losses = []
    for label, keys in samples:
        line = "%d | %s" % (1 if label else -1, " ".join(k.replace(":", "_").replace(" ", "_") for k in keys))
        losses.append(loss_of(label, model.predict(line)))
        model.learn(line)
    return judged(losses)


def lanyard(program, folder, config, sets):
    path, out = os.path.join(folder, "config.json"), os.path.join(folder, "out")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    command = [program, "up", path, "--out", out]
    for one in sets:
        command += ["--set", one]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
        summary = json.load(file)
    return summary["logloss"], summary["logloss_last_fifth"]


def with_crosses(program, folder, config):
    """What is proposed, and a configuration with it."""
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    said = subprocess.run([program, "crosses", path, "--json"], check=True, stdout=subprocess.PIPE).stdout
    found = json.loads(said)["crosses"]
    said = subprocess.run([program, "check", path], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    columns = json.loads(said)["stream"]["table"]["columns"] + [one["column"] for one in found]
    stream = dict(config["stream"], table={"columns": columns})
    return found, dict(config, stream=stream)


def compare_crosses(arguments):
    models = {"wdl": [], "dcn": ["model.name=dcn"], "dfm": ["model.name=dfm"],
              "dfm, row rate 0.01": ["model.name=dfm", "optimizer.rows.learning_rate=0.01"]}
    sets = dict(SETS, pairs=lambda data: crossed(False), kinds=lambda data: crossed(True))
    named = {"Criteo": {"include": os.path.join(FORMATS, "criteo.json")}}
    print("| rows | proposed | gain | its rows | wdl with it | %s |" % " | ".join(models))
    print("|---%s|" % ("|---" * (4 + len(models))))
    for name in ("Criteo", "Avazu", "MovieLens", "pairs", "kinds"):
        rows, config, _ = sets[name](arguments.data)
        has_header = name == "Avazu"
        rows = rows[:arguments.rows + has_header] if arguments.rows else rows
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows")
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(rows) + "\n")
            config = dict(named.get(name, config), version=1)
            config["stream"] = dict(config.get("stream", {}), files=path)
            found, wider = with_crosses(arguments.program, folder, config)
            cells = [", ".join(one["column"]["name"] for one in found) or "none",
                     ", ".join("%.4f ± %.4f" % (one["gain"], one["standard_error"]) for one in found),
                     ", ".join(str(one["rows"]) for one in found)]
            runs = [(wider, [])] if found else []
            runs += [(config, sets_of) for sets_of in models.values()]
            cells += [] if found else [""]
            for one, own in runs:
                losses = [lanyard(arguments.program, folder, one, own + ["seed=%d" % seed])
                          for seed in range(1, arguments.seeds + 1)]
                cells.append(" / ".join("%.4f" % (sum(some) / len(some)) for some in zip(*losses)))
            print("| %s | %s |" % (name, " | ".join(cells)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--data", default=os.path.join(HERE, "../../../shared/data"))
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--workers", default="1,4")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--crosses", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.crosses:
        compare_crosses(arguments)
        return
    results = {}
    for name in arguments.sets.split(","):
        try:
            rows, config, parse = SETS[name](arguments.data)
        except (OSError, subprocess.CalledProcessError) as error:
            print("%s is left out: %s" % (name, error), file=sys.stderr)
            continue
        has_header = name == "Avazu"
        rows = rows[:arguments.rows + has_header] if arguments.rows else rows
        samples = [parse(row.split("," if "," in row else "\t")) for row in rows[has_header:]]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows")
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(rows) + "\n")
            config = dict(config, version=1)
            config["stream"] = dict(config.get("stream", {}), files=path)
            for workers in arguments.workers.split(","):
                own = ["workers=" + workers]
                say(results, "the defaults, workers %s" % workers, name,
                    lanyard(arguments.program, folder, config, own))
            say(results, "all batches of 256", name,
                lanyard(arguments.program, folder, config, ["workers=1", "batch.samples_per_worker=256"]))
        for alpha in (0.02, 0.05, 0.1, 0.2):
            say(results, "FTRL, alpha %g" % alpha, name, ftrl(samples, alpha))
        for given in ("", "-l 0.1", "-l 0.05", "--ftrl --ftrl_alpha 0.05"):
            try:
                say(results, "Vowpal Wabbit %s" % given, name, vowpal(samples, given))
            except ImportError:
                break
    names = [n for n in SETS if any(n in row for row in results.values())]
    print("| | %s |\n|---%s|" % (" | ".join(names), "|---" * len(names)))
    for what, row in results.items():
        cells = ["%.4f / %.4f" % row[n] if n in row else "" for n in names]
        print("| %s | %s |" % (what.strip(), " | ".join(cells)))


def say(results, what, name, pair):
    results.setdefault(what, {})[name] = pair
    print("%s, %s: %.4f, last fifth %.4f" % (name, what, *pair), file=sys.stderr)


if __name__ == "__main__":
    main()
