#!/usr/bin/env python3
"""make_formats - lines of every format, and what Python's csv and json modules read in them.

usage: tests/golden/make_formats.py   (writes tests/golden/formats/)

NAME.in is an input. NAME.out has one line per sample, cells separated by the character \\x1f:
label, weight, time in ms, the dense features (repr), then per field its ids, each a text whose hash is the
id, "=" and a number that is the id itself, "*" and texts joined by "+" for a cross (of hashes; a "=" before
one says that it is a number), or "" for a missing one; several ids of a field are joined by "\\x1e".
tests/unit/runtime/test_formats.c has the same columns.
"""
import csv
import datetime
import io
import json
import math
import os
import random

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "formats")
UNIT, ITEM = "\x1f", "\x1e"
EDGES = [0, 1.5, 10, 100]
WORDS = ["plain", "", "two words", 'a "quoted" one', "comma, in it", "semi;colon", "tab\there",
         "line\nfeed", "naïve", "0", "'", "trailing "]


def utc(text, pattern):
    moment = datetime.datetime.strptime(text, pattern).replace(tzinfo=datetime.timezone.utc)
    return int(moment.timestamp()) * 1000


def bucket(text):
    return sum(edge <= float(text) for edge in EDGES)


def sample(row):
    """The columns of test_formats.c, from a row of texts."""
    time = utc(row["when"], "%Y-%m-%d %H:%M:%S")
    moment = datetime.datetime.fromtimestamp(time // 1000, datetime.timezone.utc)
    word = row["word"]
    price = float(row["price"] or "0")
    cells = [
        str(int(float(row["rating"]) >= 4)),
        row["weight"] or "1",
        str(time),
        repr(math.log1p(max(price, 0))),
        repr(float(row["gap"] or "-7.5")),
        str(bucket(row["price"])) if row["price"] else "0",
        word,
        "=" + row["user"] if row["user"] else "",
        ITEM.join(dict.fromkeys(t for t in row["tags"] if t)) if any(row["tags"]) else "",
        f"={moment.hour}",
        f"={moment.weekday()}",
        f"={bucket(row['price'])}" if row["price"] else "",
        row["shop"] or "none",
        "*" + "+".join([word, f"={moment.hour}"]),
        "*" + "+".join(["=" + row["user"] if row["user"] else "", word, row["hidden"]]),
    ]
    return UNIT.join(cells)


def rows(seed, text_words):
    r = random.Random(seed)
    for i in range(400):
        second = r.randrange(0, 4102444800)
        when = datetime.datetime.fromtimestamp(second, datetime.timezone.utc)
        number = r.choice(["{:d}", "{:.3f}", "{:.2e}"])
        price = number.format(r.randrange(-50, 500)) if number == "{:d}" else number.format(r.uniform(-5, 200))
        yield {
            "rating": r.choice(["1", "2.5", "3", "4", "4.0", "5"]),
            "weight": r.choice(["", "0", "0.5", "1", "2.25", "1000"]),
            "when": when.strftime("%Y-%m-%d %H:%M:%S"),
            "price": r.choice([price, price, ""]),
            "gap": r.choice(["", "3.25", "-1e3", "0.1"]),
            "word": r.choice(text_words),
            "user": r.choice([str(r.randrange(2**40)), "0", ""]),
            "tags": [r.choice(["red", "green", "b c", "7", ""]) for _ in range(r.randrange(4))],
            "shop": r.choice(["", "north", "south"]),
            "hidden": r.choice(["x", "y y", ""]),
            "unused": r.choice(text_words),
        }


NAMES = ["rating", "weight", "when", "price", "gap", "word", "user", "tags", "shop", "hidden", "unused"]


def write(name, text, samples):
    with open(os.path.join(HERE, name + ".in"), "w", newline="", encoding="utf-8") as file:
        file.write(text)
    with open(os.path.join(HERE, name + ".out"), "w", newline="", encoding="utf-8") as file:
        file.write("\x1d".join(samples))


def delimited(name, delimiter, seed):
    """Written and read again by csv: what is in NAME.out is what its reader says."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\r\n")
    for row in rows(seed, WORDS):
        writer.writerow(["|".join(row[n]) if n == "tags" else row[n] for n in NAMES])
    samples = []
    for cells in csv.reader(io.StringIO(out.getvalue(), newline=""), delimiter=delimiter):
        row = dict(zip(NAMES, cells))
        row["tags"] = row["tags"].split("|")
        samples.append(sample(row))
    write(name, out.getvalue(), samples)


def as_json(row, r):
    """Numbers as numbers where that is exact, missing members or null where cells are empty."""
    tree = {"time": {"when": row["when"]}, "shop": {"name": row["shop"] or None}, "unused": {"a": [1, {}]}}
    for name in ["rating", "weight", "gap", "price", "user"]:
        if row[name]:
            tree[name] = json.loads(row[name]) if r.random() < 0.5 else row[name]
        elif r.random() < 0.5:
            tree[name] = None
    tree["tags"] = [json.loads(t) if t == "7" else t for t in row["tags"]]
    tree["words"] = [row["word"], "second"]
    tree["hidden"] = row["hidden"]
    return tree


def json_lines(name, seed):
    r = random.Random(seed)
    lines = [json.dumps(as_json(row, r), ensure_ascii=r.random() < 0.5) for row in rows(seed, WORDS)]
    samples = []
    for line in lines:
        tree = json.loads(line)
        text = lambda value: "" if value is None else value if isinstance(value, str) else repr(value)
        row = {n: text(tree.get(n)) for n in ["rating", "weight", "gap", "price", "user", "hidden"]}
        row |= {"when": tree["time"]["when"], "shop": text(tree["shop"]["name"]), "word": tree["words"][0],
                "tags": [text(t) for t in tree["tags"]]}
        samples.append(sample(row))
    write(name, "\n".join(lines) + "\n", samples)


def libsvm(name, seed):
    """Indices 1 to 3 are dense, fields begin at 4, 10 and 1000."""
    r = random.Random(seed)
    lines, samples = [], []
    for _ in range(300):
        dense = {i: r.choice(["1", "-2.5", "0", "1e-3"]) for i in range(1, 4) if r.random() < 0.7}
        ids = {i: r.choice(["1", "1", "1.0", "0"]) for i in r.sample(range(4, 1200), 5) + r.sample(range(4, 10), 2)}
        words = [f"{i}:{v}" for i, v in {**dense, **ids}.items()]
        r.shuffle(words)
        label = r.choice(["+1", "-1", "0", "1", "5"])
        lines.append(" ".join([label] + (["qid:7"] if r.random() < 0.3 else []) + words) +
                     (" # a comment 5:1" if r.random() < 0.2 else ""))
        fields = [[], [], []]
        for word in words:
            index, value = word.split(":")
            if int(index) > 3 and float(value) == 1:
                fields[(int(index) >= 10) + (int(index) >= 1000)].append("=" + index)
        samples.append(UNIT.join([str(int(float(label) >= 1)), "1", "0"] +
                                 [repr(float(dense.get(i, "0"))) for i in range(1, 4)] +
                                 [ITEM.join(f) for f in fields]))
    write(name, "\n".join(lines) + "\n", samples)


os.makedirs(HERE, exist_ok=True)
delimited("comma", ",", 1)
delimited("semicolon", ";", 2)
delimited("tab", "\t", 3)
json_lines("json", 4)
libsvm("libsvm", 5)
