#!/usr/bin/python3
"""check_schemas - made-up schemas: does a model of each say the same, whoever asks it?

  check_schemas.py LANYARD LIBRARY FOLDER COUNT SEED

Every schema (columns of all kinds, `from`, transforms, crosses, labels anywhere, tables, JSON lines, Criteo's) gets
rows and a small model. Rows it has not seen are asked by eval, by predict with labels and without, over HTTP, by
columns and by lines of the Python package (which is liblanyard), and by the numbers that tools/read_model.py makes of
the cells: to the last bit, over HTTP of what is printed. numpy's own predictions, in 64 bits, are within 1e-5. Status 1
names seed and schema where they are not; the same SEED, with COUNT 1, makes the schema again.
"""
import csv
import datetime
import io
import json
import os
import random
import sys
import warnings

import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check_answers import Server, call, read_model  # noqa: E402

ROWS, ASKED = 300, 70
PATTERN = "%Y-%m-%d %H:%M:%S"


class Schema:
    """columns: of the configuration; makers: name of a column with a cell -> a function that gives one."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.format = self.r.choice(["table", "table", "table", "json", "json"])
        self.has_header = self.format == "table" and self.r.random() < 0.5
        self.delimiter = self.r.choice([",", ",", ";", "\t", "|"])
        self.columns, self.makers, self.labels = [], {}, []
        for add in [self.add_id_column] + self.r.choices(
                [self.add_dense, self.add_dense, self.add_id_column, self.add_id_column, self.add_list, self.add_time,
                 self.add_ignored, self.add_number_id, self.add_bucket], k=self.r.randint(3, 9)):
            add()
        for kind, share in (("weight", 0.3), ("id", 0.3), ("time", 0.3)):
            if self.r.random() < share:
                self.add(kind, {"weight": lambda: self.number(1, 3), "id": lambda: f"e{self.r.random()}",
                                "time": lambda: self.r.randrange(1 << 30)}[kind])
        self.add_labels()
        for add in self.r.choices([self.add_copy, self.add_cross, self.add_hour, self.add_hour_of_kind_time],
                                  k=self.r.randint(0, 4)):
            add()
        self.settle_order()

    # ---- columns

    def name(self, kind):
        self.count = getattr(self, "count", 0) + 1
        odd = self.r.choice(["", "", " of it", "é", '"', ","]) if self.format == "table" else ""
        return f"{kind}{self.count}{odd}"

    def add(self, kind, make=None, **members):
        column = {"name": self.name(kind), "kind": kind, **members}
        if kind == "multi":
            column["separator"] = self.r.choice([c for c in "|;, :/" if c != self.delimiter])
        if self.format == "json" and self.r.random() < 0.4:
            column["path"] = f"of.{self.r.choice('ab')}.{column['name']}"
        if self.r.random() < 0.2 and kind in ("dense", "categorical", "multi"):
            is_number = kind == "dense" or members.get("id") == "number" or "edges" in members
            column["missing"] = "7" if is_number else "none"
            if members.get("transform") in ("hour", "weekday"):
                del column["missing"]
        self.columns.append(column)
        if make:
            self.makers[column["name"]] = make
        return column

    def number(self, low, high):
        return round(self.r.uniform(low, high), self.r.randint(0, 6))

    def or_none(self, make):
        return lambda: None if self.r.random() < 0.15 else make()

    def word(self):
        texts = ["a", "b", "c,d", "e;f", 'g"h', "i j", "é", "k|l", "t\tu", "x=1", "1.0", "nan", "NA"]
        if self.format == "json" or self.delimiter != "\t":
            texts.append('over\ntwo "lines"')
        else:
            texts = [text for text in texts if not set(text) & set('\t"')]
        return self.r.choice(texts) + str(self.r.randrange(6))

    def add_dense(self):
        how = self.r.choice([{}, {}, {"transform": "log1p"}, {"transform": "bucket", "edges": [-1.5, 0.25, 3]}])
        self.add("dense", self.or_none(lambda: self.number(-9, 9)), **how)

    def add_id_column(self):
        native = self.format == "json" and self.r.random() < 0.4
        values = [True, False, 3, 2.5, 0.1, -7, 1e22, "x"]
        self.add("categorical", self.or_none(lambda: self.r.choice(values) if native else self.word()))

    def add_number_id(self):
        self.add("categorical", self.or_none(lambda: self.r.randrange(50)), id="number")

    def add_bucket(self):
        self.add("categorical", self.or_none(lambda: self.number(-9, 9)), transform="bucket", edges=[-2, 0.5, 4])

    def add_list(self):
        numbers = self.r.random() < 0.3
        words = [f"w{k}" for k in range(9)]
        self.add("multi", self.or_none(lambda: [self.r.randrange(9) if numbers else self.r.choice(words)
                                                for _ in range(self.r.randrange(6))]),
                 values_max=self.r.randint(1, 5), id="number" if numbers else "hash")

    def moment(self):
        return datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=self.r.randrange(10**7))

    def add_time(self):
        unix = self.r.random() < 0.5
        make = self.or_none(lambda: self.r.randrange(1 << 31) if unix else self.moment().strftime(PATTERN))
        self.add(self.r.choice(["dense", "categorical"]), make, transform=self.r.choice(["hour", "weekday"]),
                 time_format="unix" if unix else PATTERN)

    def add_ignored(self):
        if self.r.random() < 0.6:
            made = self.add("ignore", self.or_none(lambda: self.moment().strftime(PATTERN)))
            self.times = getattr(self, "times", []) + [made["name"]]
        else:
            self.add("ignore", self.or_none(self.word))

    def add_labels(self):
        several = self.r.random() < 0.3
        for _ in range(self.r.randint(2, 3) if several else 1):
            made = self.r.random()
            if made < 0.25:  # of a column that is ignored
                own = self.add("ignore", lambda: self.r.randrange(1, 6))
                self.labels.append(own["name"])
                self.add("label", **{"from": own["name"], "rule": "at_least", "value": "4"})
            else:
                classes = {"classes": 3} if made > 0.9 and not several and not self.of_kind("weight") else {}
                own = self.add("label", lambda: self.r.randrange(3 if classes else 2), **classes)
                self.labels.append(own["name"])

    def of_kind(self, *kinds):
        return [column for column in self.columns if column["kind"] in kinds]

    def add_copy(self):
        own = self.r.choice([c for c in self.of_kind("categorical", "dense") if "from" not in c])
        if own["kind"] == "dense" or own.get("transform") == "bucket":
            how = {"transform": "bucket", "edges": [0, 1]} if own.get("transform") not in ("hour", "weekday") else {}
            self.add("categorical", **{"from": own["name"]}, **how)
        else:
            self.add("categorical", **{"from": own["name"]})

    def add_cross(self):
        ids = [c["name"] for c in self.of_kind("categorical", "ignore") if c["name"] not in self.labels]
        if len(ids) > 1:
            self.add("categorical", **{"from": self.r.sample(ids, self.r.randint(2, min(4, len(ids))))})

    def add_hour(self):
        if getattr(self, "times", None):
            self.add(self.r.choice(["categorical", "dense", "ignore"]),
                     **{"from": self.r.choice(self.times), "transform": self.r.choice(["hour", "weekday"])
                        , "time_format": PATTERN})

    def add_hour_of_kind_time(self):
        for own in self.of_kind("time"):
            self.add("categorical", **{"from": own["name"], "transform": "hour"})

    def settle_order(self):
        """Any order in which what a column is made of stands before it."""
        left, done = self.columns[:], []
        self.r.shuffle(left)
        while left:
            for column in left:
                made = column.get("from", [])
                if set([made] if isinstance(made, str) else made) <= {one["name"] for one in done}:
                    done.append(column)
                    left.remove(column)
                    break
        self.columns = done
        self.cells = [column for column in done if "from" not in column]
        self.by_name = {column["name"]: column for column in done}
        for column in self.columns:  # called by the number of the cell, or by the path
            wanted = any(column["name"] in ([c.get("from")] if isinstance(c.get("from"), str) else c.get("from", []))
                         for c in self.columns)
            if self.r.random() < 0.1 and not wanted and column["kind"] != "label" and not self.has_header and \
                    column in self.cells and (self.format == "table" or "path" in column):
                self.makers[""] = self.makers.pop(column["name"])
                column["asked"] = column.get("path") or str(self.cells.index(column) + 1)
                column["name"], self.by_name[""] = "", column
                break
        file_order = [column["name"] for column in self.cells]
        file_order += ["not used"] * (self.has_header and self.r.random() < 0.5)
        if self.has_header:
            self.r.shuffle(file_order)
        self.file_order = file_order

    # ---- rows

    def row(self):
        return {name: make() for name, make in self.makers.items()}

    def text(self, name, value):
        if value is None:
            return ""
        if isinstance(value, list):
            return self.by_name[name]["separator"].join(map(str, value))
        return str(value)

    def write(self, path, rows, with_labels=True):
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(self.lines(rows, with_labels))

    def lines(self, rows, with_labels=True, header=None, order=None):
        leave_out = set() if with_labels else set(self.labels)
        if self.format == "json":
            return "".join(json.dumps(self.object(row, leave_out), ensure_ascii=self.r.random() < 0.5) + "\n"
                           for row in rows)
        names = [name for name in order or self.file_order if name not in leave_out]
        out = io.StringIO()
        quoting = csv.QUOTE_NONE if self.delimiter == "\t" else csv.QUOTE_MINIMAL
        writer = csv.writer(out, delimiter=self.delimiter, quoting=quoting, lineterminator="\n",
                            quotechar=None if quoting == csv.QUOTE_NONE else '"')
        if self.has_header if header is None else header:
            writer.writerow(names)
        for row in rows:
            texts = [self.text(name, row.get(name)) for name in names]
            writer.writerow(texts) if texts != [""] else out.write("\n")
        return out.getvalue()

    def object(self, row, leave_out):
        root = {}
        for column in self.cells:
            value = row[column["name"]]
            if column["name"] in leave_out or (value is None and self.r.random() < 0.5):
                continue
            *folders, name = (column.get("path") or column["name"]).split(".")
            at = root
            for folder in folders:
                at = at.setdefault(folder, {})
            at[name] = value
        return root

    # ---- what is asked

    def asked_columns(self):
        """(column, the name that questions call it by); nobody has to say what nothing is made of."""
        needed, made_of = set(), {c["name"]: c.get("from", []) for c in self.columns}
        todo = [c["name"] for c in self.of_kind("dense", "categorical", "multi")]
        while todo:
            name = todo.pop()
            needed.add(name)
            todo += [made_of[name]] if isinstance(made_of[name], str) else made_of[name]
        return [(c, c.get("asked", c["name"])) for c in self.cells if c["name"] in needed]

    def config(self):
        model = self.r.choice([{"name": "wdl", "mlp": [16]}, {"name": "wdl", "deep_input": "dense", "mlp": [8, 4]},
                               {"name": "dfm", "mlp": [33, 7]}, {"name": "dcn", "mlp": [40, 16]},
                               {"name": "dcn", "cross": "vector", "mlp": [5]}, {"name": "dlrm", "mlp": [16]}])
        if not self.of_kind("dense"):
            model = {"name": "wdl", "mlp": [24, 12]}
        pairs = [(many["name"], one["name"]) for many in self.of_kind("multi") for one in self.of_kind("categorical")
                 if "transform" not in one and "from" not in one and many["name"] and one["name"] and
                 many.get("id", "hash") == one.get("id", "hash")]
        shared = [self.r.choice(pairs)] if pairs and self.r.random() < 0.6 else []
        if shared and self.r.random() < 0.6:
            model = {"name": "din", "sequence": shared[0][0], "target": shared[0][1], "attention": [6], "mlp": [16]}
        columns = [{k: v for k, v in c.items() if k != "asked"} for c in self.columns]
        stream = {"format": self.format, "tables": ["=".join(pair) for pair in shared], "table": {"columns": columns}}
        if self.format == "table":
            stream["table"].update(header=self.has_header, delimiter=self.delimiter)
        if len(self.labels) == 1 and not any("classes" in c for c in columns) and self.r.random() < 0.2:
            stream["negatives_keep"] = 0.5
        return small({"stream": stream, "model": {"embedding_dim": self.r.choice([2, 8, 16, 33]), **model,
                                                  "pooling": self.r.choice(["sum", "mean"])}})


class Criteo(Schema):
    """Its columns are the format's."""

    def __init__(self, seed):  # pylint: disable=super-init-not-called
        self.r, self.format, self.has_header, self.delimiter = random.Random(seed), "criteo", False, "\t"
        self.has_id = self.r.random() < 0.5
        self.labels = ["label"]
        self.makers = {"label": lambda: self.r.randrange(2)}
        for i in range(1, 14):
            self.makers[f"I{i}"] = self.or_none(lambda: self.r.randrange(-3, 20000))
        for i in range(1, 27):
            self.makers[f"C{i}"] = self.or_none(lambda: f"{self.r.randrange(40):08x}")
        self.columns = []
        self.file_order = list(self.makers)
        if self.has_id:
            self.makers["name"] = lambda: f"e{self.r.random()}"
            self.file_order.append("name")

    def asked_columns(self):
        return [({"name": name}, name) for name in self.makers if name[0] in "IC"]

    def config(self):
        stream = {"format": "criteo", **({"id": "41"} if self.has_id else {})}
        return small({"stream": stream, "model": {"embedding_dim": 4, "mlp": [32, 9],
                                                  "name": self.r.choice(["wdl", "dfm", "dcn", "dlrm"])}})


def small(config):
    return {"workers": 1, "batch": {"samples_per_worker": 32}, "cache": {"rows": 5000}, **config,
            "optimizer": {"rows": {"learning_rate": 0.2}}}


# ---- asking

class Differs(Exception):
    pass


def must_equal(what, ours, theirs):
    ours, theirs = np.asarray(ours, np.float32), np.asarray(theirs, np.float32)
    if ours.shape != theirs.shape or np.isnan(theirs).any():
        raise Differs(f"{what}: {ours.shape} numbers, expected {theirs.shape}")
    if ours.tobytes() != theirs.tobytes():
        row = int(np.flatnonzero((ours != theirs).reshape(len(ours), -1).any(1))[0])
        raise Differs(f"{what}: row {row} gives {ours[row]}, eval {theirs[row]}")


def printed(text):
    rows = np.array([[float(cell) for cell in line.split("\t")] for line in text.splitlines()], np.float32)
    return rows[:, 0] if rows.shape[1] == 1 else rows


def typed(schema, column, values):
    """As a program has them: numbers as numbers, in one container or another."""
    kind = schema.r.randrange(3)
    if column["kind"] == "multi" if "kind" in column else False:
        return [schema.text(column["name"], one) for one in values] if kind and schema.format != "json" else values
    if all(one is None or isinstance(one, float) for one in values) and kind == 0 and column.get("kind") == "dense":
        return np.array([np.nan if one is None else one for one in values], np.float64)
    if schema.format == "table" and kind == 1:
        return np.array(["" if one is None else str(one) for one in values])
    return values


def texts_of(package, schema, column, values):
    if schema.format == "json":
        text = package.cells._text_of  # pylint: disable=protected-access
        return [[text(each, True) for each in one] if isinstance(one, list) else text(one, True) for one in values]
    return [schema.text(column["name"], one) for one in values]


def over_http(server, schema, rows):
    asked, out, at = schema.asked_columns(), [], 0
    while at < len(rows):
        some = rows[at:at + schema.r.choice([1, 1, 2, 5, 23])]
        shared = [pair for pair in asked if schema.r.random() < 0.3 and
                  all(one[pair[0]["name"]] == some[0][pair[0]["name"]] for one in some)]

        def cells(row, pairs):
            given = {}
            for column, name in pairs:
                value = row[column["name"]]
                if schema.format != "json" and value is not None:
                    as_it_is = isinstance(value, (int, float)) or (isinstance(value, list) and schema.r.random() < 0.5)
                    value = value if as_it_is else schema.text(column["name"], value)
                if value is not None or schema.r.random() < 0.5:
                    given[name] = value
            return given

        body = {"context": cells(some[0], shared),
                "candidates": [cells(row, [pair for pair in asked if pair not in shared]) for row in some]}
        answer = json.loads(server.ask("/predict", json.dumps(body).encode()))
        out += answer["probabilities"]
        at += len(some)
    return out, answer["model"]


def ask_all(lanyard, package, folder, schema):
    def path(name):
        return os.path.join(folder, name)

    with open(path("config.json"), "w", encoding="utf-8") as file:
        json.dump(schema.config(), file)
    rows = [schema.row() for _ in range(ASKED)]
    schema.write(path("train"), [schema.row() for _ in range(ROWS)])
    schema.write(path("asked"), rows)
    schema.write(path("bare"), rows, with_labels=False)
    call(lanyard, "up", path("config.json"), "--out", path("out"), "--set", f"stream.files={path('train')}")
    model, files = path("out/model"), ["--set", "stream.samples_max=0", "--set", f"stream.files={path('asked')}"]
    call(lanyard, "eval", model, "--predictions", path("want"), *files)
    with open(path("want"), encoding="ascii") as file:
        want = printed(file.read())
    must_equal("predict", printed(call(lanyard, "predict", model, *files)), want)
    files[-1] = f"stream.files={path('bare')}"
    must_equal("predict, without labels", printed(call(lanyard, "predict", model, *files)), want)

    loaded, reader = package.Model(model), read_model(model)
    values = {name: [row[column["name"]] for row in rows] for column, name in schema.asked_columns()}
    columns = {name: typed(schema, column, values[name]) for column, name in schema.asked_columns()}
    must_equal("Python, columns", loaded.predict(columns), want)
    alone = [loaded.predict({n: c[i:i + 1] for n, c in columns.items()}) for i in range(5)]
    must_equal("Python, columns, one at a time", np.concatenate(alone), want[:5])
    must_equal("Python, lines", loaded.predict_lines(schema.lines(rows)), want)
    must_equal("Python, lines without labels", loaded.predict_lines(schema.lines(rows, with_labels=False)), want)
    if schema.format == "table":
        order = schema.r.sample(schema.file_order, len(schema.file_order))
        if "" not in order:
            must_equal("Python, lines in an order", loaded.predict_lines(
                schema.lines(rows, header=False, order=order), columns=order), want)
    texts = {name: texts_of(package, schema, column, values[name]) for column, name in schema.asked_columns()}
    dense, keys = reader.features(texts)
    if len({len(own) for own in keys}) == 1 and len(keys[0]) == loaded.field_count:
        must_equal("numpy's numbers", loaded.predict_keys(dense, np.array(keys, np.uint64)), want)
    worst = np.abs(reader.predict(dense, keys) - want).max()
    if not worst < 1e-5:
        raise Differs(f"numpy: {worst} from eval")
    with Server(lanyard, model) as server:
        served, version = over_http(server, schema, rows)
    must_equal("HTTP", served, want)
    if (version["iteration"], version["samples"]) != (loaded.iteration, loaded.samples) or \
            abs(version["age_s"] - loaded.age_s) > 60 or reader.trained_s != loaded.trained_s:
        raise Differs(f"the model is {version} by HTTP, {loaded.iteration}, {loaded.samples}, {loaded.age_s} by Python")


def main():
    lanyard, os.environ["LANYARD_LIBRARY"], folder, count, first = sys.argv[1:]
    import lanyard as package
    warnings.filterwarnings("error", category=UserWarning)
    for seed in range(int(first), int(first) + int(count)):
        schema = (Criteo if seed % 10 == 9 else Schema)(seed)
        own = os.path.join(folder, str(seed))
        os.makedirs(own)
        try:
            ask_all(lanyard, package, own, schema)
        except BaseException as error:
            print(f"seed {seed}: {schema.format}, header {schema.has_header}, delimiter {schema.delimiter!r}, "
                  f"order {schema.file_order}\n{json.dumps(schema.columns)}\n{own}: {error!r}")
            if not isinstance(error, (Differs, SystemExit)):
                raise
            sys.exit(1)
        print(f"seed {seed}: {schema.format}, {len(schema.columns)} columns, {len(schema.labels)} labels: the same")


if __name__ == "__main__":
    main()
