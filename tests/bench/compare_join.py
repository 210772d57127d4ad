#!/usr/bin/python3
"""How a join may train: label 1 as its outcome comes, or every event once its window is over.

  compare_join.py PROGRAM [--before PROGRAM] [--scratch FOLDER] [--orders]

Makes events, 5% of which have an outcome after a minute on average, and a window of 600 s, by times in the data: at an
even rate, and with ten minutes in which ten times as many come. "Held" is the same events with their labels, in the
order of their windows' ends, which is what a join that holds them would train. The log loss is over the run, each
batch before it is trained, and on 20,000 more events afterwards. --before: another program to set beside.

--orders: without a join, what the order of labels does. The same 60,000 samples as they are, and with the labels of the
first 4,096 all 0, or all 1; log loss on 20,000 more samples, by the share of label 1.
"""
import argparse
import json
import math
import os
import random
import re
import shutil
import subprocess
import tempfile

WINDOW_S = 600
EVENTS = [{"name": "id", "kind": "id"}, {"name": "at", "kind": "time"}]
FEATURES = [{"name": "x", "kind": "dense"}, {"name": "item", "kind": "categorical"}]
LABEL = [{"name": "y", "kind": "label"}]


def sample(draw, base=-3.3):
    item, x = draw.randrange(50), draw.random()
    logit = 3 * (x - 0.5) + (item % 5 - 2) * 0.3 + base
    return f"{x:.6f},i{item}", int(draw.random() < 1 / (1 + math.exp(-logit)))


def make(name, rate_at, count):
    draw, at, outcomes = random.Random(5), 1_700_000_000.0, []
    with open(name + ".events", "w") as events, open(name + ".held", "w") as held:
        for i in range(count):
            at += draw.expovariate(rate_at(at - 1_700_000_000))
            features, label = sample(draw)
            events.write(f"e{i},{at:.0f},{features}\n")
            held.write(f"{features},{label}\n")
            if label:
                outcomes.append((at + min(draw.expovariate(1 / 60), WINDOW_S - 10), i))
    with open(name + ".outcomes", "w") as file:
        file.writelines(f"e{i},{at:.0f}\n" for at, i in sorted(outcomes))
    with open(name + ".more", "w") as file:
        for _ in range(20000):
            features, label = sample(draw)
            file.write(f"{features},{label}\n")


def config(joined):
    stream = {"format": "table", "table": {"columns": EVENTS + FEATURES if joined else FEATURES + LABEL}}
    if joined:
        stream["join"] = {"window_s": WINDOW_S, "columns": EVENTS}
    return {"version": 1, "workers": 1, "cache": {"rows": 20000}, "stream": stream,
            "model": {"name": "wdl", "deep_input": "all", "mlp": [32, 16], "embedding_dim": 8}}


def run(program, name, how, batch, told):
    joined = how != "held"
    shutil.rmtree("out", ignore_errors=True)
    with open("config.json", "w") as file:
        json.dump(config(joined), file)
    inputs = [f"stream.files={name}.events", f"stream.join.outcomes={name}.outcomes"] if joined else \
        [f"stream.files={name}.held"]
    sets = [f"batch.samples_per_worker={batch}", *inputs, *(["model.base_rate=0.05"] if told else [])]
    words = [program, "up", "config.json", "--out", "out"]
    done = subprocess.run(words + [w for s in sets for w in ("--set", s)], capture_output=True, text=True, check=True)
    over = re.search(r"^log loss ([\d.]+)", done.stdout, re.M).group(1)
    more = ["stream.table.columns=" + json.dumps(FEATURES + LABEL), f"stream.files={name}.more"]
    if joined:
        more += ["stream.join.columns=[]", "stream.join.outcomes=[]"]
    done = subprocess.run([program, "eval", "out/model"] + [w for s in more for w in ("--set", s)],
                          capture_output=True, text=True, check=True)
    after = re.search(r"log loss ([\d.]+).*calibration ([\d.]+)", done.stdout)
    return over, after.group(1), after.group(2)


def make_orders(base):
    draw = random.Random(21)
    rows = [sample(draw, base) for _ in range(80000)]
    for name, first in (("mixed", None), ("zeros", 0), ("ones", 1)):
        with open(name + ".held", "w") as file:
            file.writelines(f"{features},{label if first is None or i >= 4096 else first}\n"
                            for i, (features, label) in enumerate(rows[:60000]))
        with open(name + ".more", "w") as file:
            file.writelines(f"{features},{label}\n" for features, label in rows[60000:])
    return sum(label for _, label in rows) / len(rows)


def compare_orders(programs):
    print("| label 1 | batch | program | mixed | label 0 first | label 1 first |")
    print("|---|---|---|---|---|---|")
    for base in (-6.6, -3.3, -1, 3.3):
        share = make_orders(base)
        for batch in (64, 1024, 4096):
            for how, program in programs:
                losses = [run(program, name, "held", batch, False)[1] for name in ("mixed", "zeros", "ones")]
                print(f"| {share:.3f} | {batch} | {how} | {' | '.join(losses)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--before")
    parser.add_argument("--scratch")
    parser.add_argument("--orders", action="store_true")
    words = parser.parse_args()
    programs = [("held", words.program), ("at once", words.program)]
    if words.before:
        programs.append(("at once, before", words.before))
    programs = [(how, os.path.abspath(path)) for how, path in programs]
    with tempfile.TemporaryDirectory(dir=words.scratch) as scratch:
        os.chdir(scratch)
        if words.orders:
            compare_orders([("now" if how == "held" else "before", path) for how, path in programs if how != "at once"])
            return
        make("even", lambda s: 10, 60000)
        make("burst", lambda s: 100 if 2400 <= s < 3000 else 10, 120000)
        print("| events | batch | trained | base rate | log loss of the run | of more events | calibration |")
        print("|---|---|---|---|---|---|---|")
        for name in ("even", "burst"):
            for batch in (64, 1024):
                for how, program in programs:
                    for told in (True, False):
                        result = run(program, name, how, batch, told)
                        print(f"| {name} | {batch} | {how} | {'told' if told else 'auto'} | {' | '.join(result)} |",
                              flush=True)


if __name__ == "__main__":
    main()
