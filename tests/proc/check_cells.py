#!/usr/bin/python3
"""check_cells - values of a program, as the cells of a model.

  check_cells.py missing LANYARD LIBRARY FOLDER   what is missing is missing, in every container
  check_cells.py lines LANYARD LIBRARY FOLDER     lines with a header, in an order, over several lines; NaN has a reason
  check_cells.py folders LANYARD LIBRARY FOLDER   a checkpoint, one of a later build, a label whose weights are NaN
  check_cells.py locale LANYARD LIBRARY FOLDER    a host that has set its locale, before or after, on this thread or not

Containers of pandas, Polars and Arrow are asked where those are installed. Status 1, and a line that says why.
"""
import ctypes
import datetime
import decimal
import glob
import json
import locale
import os
import shutil
import subprocess
import sys
import threading
import warnings

import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check_answers import call, read_model  # noqa: E402

NAN, TIME = float("nan"), "%Y-%m-%d %H:%M:%S"
COLUMNS = [
    {"name": "y", "kind": "label"}, {"name": "x", "kind": "dense"}, {"name": "word", "kind": "categorical"},
    {"name": "code", "kind": "categorical", "id": "number"}, {"name": "value", "kind": "categorical"},
    {"name": "flag", "kind": "categorical"}, {"name": "at", "kind": "ignore"}, {"name": "tags", "kind": "multi"},
    {"name": "hour", "kind": "categorical", "from": "at", "transform": "hour", "time_format": TIME}]


def train(lanyard, package, folder, kind, columns=None, name="model", **table):
    """Of rows in which every value counts, a missing one most."""
    columns = columns or COLUMNS
    out, rows = os.path.join(folder, name), []
    for i in range(1200):
        row = {"x": i % 7 / 4 - 0.5, "word": f"w{i % 5}", "code": i % 11, "value": [3, 2.5, 0.1][i % 3],
               "flag": i % 2 == 0, "at": f"2026-03-0{i % 9 + 1} {i % 24:02}:30:00", "tags": [f"t{i % 4}", f"t{i % 3}"]}
        for k, one in enumerate(list(row)):
            if (i * 31 + k * 7) % 6 == 0:
                row[one] = None
        row["y"] = int((i * 7 + (row["word"] is None) * 3 + (row["x"] is None)) % 5 < 2)
        rows.append(row)
    with open(out + ".rows", "w", encoding="utf-8") as file:
        if kind == "table" and table.get("header"):
            file.write(",".join(c["name"] for c in columns if "from" not in c) + "\n")
        for row in rows:
            cells = [row[c["name"]] for c in columns if "from" not in c]
            texts = ["" if one is None else "|".join(one) if isinstance(one, list) else str(int(one))
                     if isinstance(one, bool) else str(one) for one in cells]
            file.write((",".join(texts) if kind == "table" else json.dumps(row)) + "\n")
    with open(out + ".json", "w", encoding="utf-8") as file:
        json.dump({"workers": 1, "batch": {"samples_per_worker": 32}, "cache": {"rows": 2000},
                   "stream": {"format": kind, "table": {"columns": columns, **table}},
                   "model": {"mlp": [8], "embedding_dim": 4}, "optimizer": {"rows": {"learning_rate": 0.3}}}, file)
    call(lanyard, "up", out + ".json", "--out", out, "--set", f"stream.files={out}.rows")
    return package.Model(os.path.join(out, "model"))


def modules():
    found = {}
    for name in ("pandas", "polars", "pyarrow"):
        try:
            found[name] = __import__(name)
        except ImportError:
            print(f"{name} is not installed")
    return found


# ---- what is missing

def plain_containers(values):
    """Lists and arrays that hold these values, each with every sign of a missing one that it knows."""
    signs = [None, NAN, np.float32("nan"), np.datetime64("NaT"), decimal.Decimal("NaN"), decimal.Decimal("sNaN"), ""]
    for sign in signs:
        own = [sign if one is None else one for one in values]
        yield f"list with {sign!r}", own
        yield f"tuple with {sign!r}", tuple(own)
        array = np.empty(len(own), object)
        array[:] = own
        yield f"object array with {sign!r}", array
    filled = [values[0] if one is None else one for one in values]
    if not isinstance(values[0], list):
        yield "masked array", np.ma.MaskedArray(np.array(filled), [one is None for one in values])
    if all(one is None or isinstance(one, float) for one in values):
        yield "floats with NaN", np.array([NAN if one is None else one for one in values])
        if all(one is None or float(np.float32(str(one))) == np.float32(one) for one in values):
            yield "32-bit floats with NaN", np.array([NAN if one is None else one for one in values], np.float32)
    if all(one is None or isinstance(one, str) for one in values):
        yield "texts", np.array(["" if one is None else one for one in values])
        yield "bytes", np.array([("" if one is None else one).encode() for one in values])
    if isinstance(values[0], datetime.datetime):
        for unit in ("s", "ms", "us", "ns"):
            yield f"datetime64[{unit}]", np.array(values, f"datetime64[{unit}]")
            yield f"datetime64[{unit}], the other way round", np.array(values, f">M8[{unit}]")
    if hasattr(getattr(np, "dtypes", None), "StringDType") and isinstance(values[0], str):
        for sign in (None, NAN):
            yield f"StringDType with {sign!r}", np.array([sign if one is None else one for one in values],
                                                         np.dtypes.StringDType(na_object=sign))


def frame_containers(values, found):
    pandas, polars, arrow = (found.get(name) for name in ("pandas", "polars", "pyarrow"))
    is_list, first = isinstance(values[0], list), values[0]
    if pandas:
        for sign in (None, NAN, pandas.NA, pandas.NaT):
            own = [sign if v is None else v for v in values]
            yield f"Series of objects with {sign!r}", pandas.Series(own, dtype=object)
        if not is_list:
            yield "Series", pandas.Series(values)
            yield "Series.array", pandas.Series(values).array
            yield "category", pandas.Series(values, dtype="category")
        kinds = {str: ["string", "string[python]"], bool: ["boolean"], int: ["Int64", "Int32"], float: ["Float64"],
                 datetime.datetime: ["datetime64[ns]", "datetime64[s]"]}.get(type(first), [])
        if arrow:
            kinds = kinds + {str: ["string[pyarrow]"], int: ["int64[pyarrow]"], float: ["double[pyarrow]"],
                             bool: ["bool[pyarrow]"], datetime.datetime: ["timestamp[s][pyarrow]"]}.get(type(first), [])
        for kind in kinds:
            yield f"Series of {kind}", pandas.Series(values, dtype=kind)
    if arrow:
        yield "Arrow", arrow.array(values)
        yield "Arrow, in pieces", arrow.chunked_array([arrow.array(values[:1]), arrow.array(values[1:])])
        if isinstance(first, str):
            yield "Arrow, a dictionary", arrow.array(values).dictionary_encode()
    if polars:
        yield "Polars", polars.Series(values)
        if isinstance(first, str):
            yield "Polars, categories", polars.Series(values, dtype=polars.Categorical)


def missing(lanyard, package, folder):
    found, asked, wrong = modules(), 0, []
    at = datetime.datetime(2026, 3, 4, 7, 30)
    values = {"word": ["w1", None, "w2"], "code": [3, None, 10], "value": [2.5, None, 3.0], "x": [0.25, None, -0.5],
              "flag": [True, None, False], "at": [at, None, at + datetime.timedelta(hours=5)],
              "tags": [["t1", "t2"], None, ["t3"]]}
    texts = {"table": {"flag": ["1", "", "0"]}, "json": {"flag": ["true", "", "false"]}}
    own = {"word": ["w1", "", "w2"], "code": ["3", "", "10"], "value": ["2.5", "", "3"], "x": ["0.25", "", "-0.5"],
           "at": ["2026-03-04 07:30:00", "", "2026-03-04 12:30:00"]}
    for kind in ("table", "json"):
        model = train(lanyard, package, folder, kind, name=kind)
        rest = {**own, **texts[kind], "tags": [["t1", "t2"], "", ["t3"]]}
        want = model.predict(rest)
        assert len(set(want.tolist())) == 3, f"{want} shows nothing"
        for column, some in values.items():
            for what, container in [*plain_containers(some), *frame_containers(some, found)]:
                try:
                    got = model.predict({**rest, column: container})
                except Exception as error:  # pylint: disable=broad-except
                    got = repr(error)
                asked += 1
                if not isinstance(got, np.ndarray) or got.tobytes() != want.tobytes():
                    wrong.append(f"{kind}, {column}: {what}: {got}, expected {want}")
        big = 2**55 + 1  # no float holds it
        assert model.predict({"code": [big, None]})[0] == model.predict({"code": [str(big), ""]})[0]
        beyond = 2**63 + 9  # no signed integer holds it
        for order in "<>":
            assert model.predict({"word": np.array([beyond], order + "u8")})[0] == \
                model.predict({"word": [str(beyond)]})[0], f"uint64, {order}"
        for name, frame in frames(found, rest).items():
            if not np.array_equal(model.predict(frame), want):
                wrong.append(f"{kind}: a frame of {name}")
        if kind == "table":  # numpy's reader takes texts
            reader = read_model(os.path.join(folder, kind, "model"))
            cells = {**rest, "tags": ["t1|t2", "", "t3"]}
            for sign in (None, NAN):
                dense, keys = reader.features({n: [sign if one == "" else one for one in c] for n, c in cells.items()})
                other = reader.features(cells)
                assert np.array_equal(dense, other[0]) and keys == other[1], f"numpy's reader: {sign}"
        for bad in ("w1", [["a", "b"], "c"]):
            try:
                model.predict({"word": bad})
                wrong.append(f"{bad} was taken for a column of one value")
            except ValueError:
                pass
    print(f"{asked} containers, {len(wrong)} of them wrong")
    sys.exit("\n".join(wrong) if wrong else 0)


def frames(found, texts):
    cells = {name: column if name != "tags" else [one or None for one in column] for name, column in texts.items()}
    made = {name: found[name].DataFrame(cells) for name in ("pandas", "polars") if name in found}
    if "pyarrow" in found:
        made["pyarrow"] = found["pyarrow"].table(cells)
    return made


# ---- lines

def lines(lanyard, package, folder):
    model = train(lanyard, package, folder, "table", header=True)
    names = [c["name"] for c in COLUMNS if "from" not in c]
    rows = [["1", "0.25", "w1", "3", "2.5", "1", "2026-03-04 07:30:00", "t1|t2"], ["0", "", "w2", "", "3", "0", "", ""]]
    want = model.predict({name: [row[i] for row in rows] for i, name in enumerate(names) if name != "y"})

    def text(order, with_header, end="\n"):
        cells = [[row[names.index(n)] if n in names else "?" for n in order] for row in rows]
        return end.join(map(",".join, [order] * with_header + cells)) + end

    turned = names[::-1]
    bare = [n for n in turned if n != "y"]
    more = ["what nobody knows", *bare[:4], "again unknown", *bare[4:]]
    warnings.filterwarnings("error", category=UserWarning)
    for what, got in {
            "as configured": model.predict_lines(text(names, False)),
            "as configured, without the label": model.predict_lines(text([n for n in names if n != "y"], False)),
            "a header": model.predict_lines(text(turned, True)),
            "a header behind a mark, Windows": model.predict_lines(
                b"\xef\xbb\xbf" + text(turned, True, "\r\n").encode()),
            "a header without the label": model.predict_lines(text(bare, True)),
            "a header with more": model.predict_lines(text(more, True)),
            "an order": model.predict_lines(text(turned, False), columns=turned),
            "an order with more": model.predict_lines(text(more, False), columns=more),
            "a list of lines": model.predict_lines(text(turned, True).splitlines(True)),
            "an array of lines": model.predict_lines(np.array(text(turned, True).splitlines())),
            "an array of bytes": model.predict_lines(np.array(text(turned, True).encode().splitlines())),
            "as configured once more": model.predict_lines(text(names, False))}.items():
        assert np.array_equal(got, want), f"{what}: {got}, expected {want}"
    quoted = '1,0.25,"w1\n""and"", more",3,2.5,1,,\n0,,w2,,3,0,,\n'
    two = model.predict({"x": ["0.25", ""], "word": ['w1\n"and", more', "w2"], "code": ["3", ""], "value": ["2.5", "3"],
                         "flag": ["1", "0"]})
    assert np.array_equal(model.predict_lines(quoted), two), "a cell over two lines"
    for what, data, columns in (("no such column", text(turned[1:], True), None),
                                ("a column twice", text([*turned, "x"], True), None),
                                ("an order that lacks one", text(turned[1:], False), turned[1:]),
                                ("an order that has one twice", text(turned, False), [*turned, "x"])):
        try:
            model.predict_lines(data, columns=columns)
            raise AssertionError(what)
        except package.ModelError as error:
            assert "lacks this column" in str(error) or "has this column twice" in str(error), error
    bad = text(names, False) + "\n" + "1,many,w1,3,2.5,1,,\n" + "1,2\n" + '"open\n'
    bad += text(names, False).split("\n", 1)[0]
    problems = {}
    got = model.predict_lines(bad, problems=problems)
    assert np.flatnonzero(np.isnan(got)).tolist() == sorted(problems) == [2, 3, 4, 5], (got, problems)
    for row, part in ((2, "empty line"), (3, 'found "many"'), (4, "expected 8 cells, or 7 without labels, found 2"),
                      (5, "closing quote")):
        assert part in problems[row], problems
    assert got[6] == want[0] and np.array_equal(got[:2], want), got
    try:
        model.predict_lines(bad)
        raise AssertionError("NaN without a word")
    except UserWarning as told:
        assert "4 of 7 rows gave no number; row 2: expected a sample, found an empty line" in str(told), told
    try:
        model.predict({"x": [1.0, "many"]})
        raise AssertionError("a text for a number")
    except package.ModelError as error:
        assert 'sample 1: x: expected a finite number or nothing, found "many"' in str(error), error
    for name, part in (("hour", 'is made of "at"'), ("y", "not asked for"), ("z", 'no column "z"')):
        try:
            model.predict({name: ["1"]})
            raise AssertionError(name)
        except package.ModelError as error:
            assert part in str(error) or "asked for" in str(error), error
    try:
        model.predict_keys(np.full((1, model.dense_count), NAN, np.float32), np.zeros((1, model.field_count), np.uint64)
                           + (np.arange(model.field_count, dtype=np.uint64) << np.uint64(56)))
        raise AssertionError("NaN was taken for a number")
    except package.ModelError as error:
        assert "dense feature 0 is not finite" in str(error), error
    question = os.path.join(folder, "question")
    with open(question, "w", encoding="utf-8") as file:
        file.write(text(bare, True))  # without what names an event, too
    printed = call(lanyard, "predict", os.path.join(folder, "model", "model"), "--set", "stream.id=event", "--set",
                   f"stream.files={question}")
    assert np.array_equal(np.array(printed.split(), np.float32), want), printed
    for some in ([text(names, False).splitlines()[0], ""], ["", ""], [b"", b""], []):
        assert len(model.predict_lines(some, problems={})) == len(some), some
    print("lines by the configuration, a header and an order; NaN has a reason")


# ---- folders

NO_MODEL = 2  # LANYARD_NO_MODEL


def status_of(package, folder):
    # pylint: disable=protected-access
    return package._lib().lanyard_load(os.fsencode(folder), ctypes.byref(ctypes.c_void_p()), None, 0)


def sum_of(package, data):
    array = np.frombuffer(bytes(data), np.uint8).copy()
    return f"{package.weights._XXH3(array.ctypes.data, array.nbytes):016x}"  # pylint: disable=protected-access


def sign_anew(package, path, before, after):
    """The manifest with other text in it."""
    with open(path, encoding="utf-8") as file:
        text, mark = file.read(), ',\n  "checksum": "'
    assert before in text, text
    body = text[:text.rfind(mark)].replace(before, after, 1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{body}{mark}{sum_of(package, body.encode())}"\n}}\n')


def spoil_bias(package, folder):
    """The bias of the first label is NaN."""
    path = os.path.join(folder, "dense.bin")
    with open(path, "rb") as file:
        data_before = file.read()
    data = bytearray(data_before)
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    first = begin + header["output.bias"]["data_offsets"][0]
    data[first:first + 4] = np.float32(NAN).tobytes()
    was = header["__metadata__"]["xxh3"].encode()
    hashed = data.index(was) + len(was)
    before = sum_of(package, data_before)
    data[hashed - len(was):hashed] = sum_of(package, data[hashed:]).encode()
    with open(path, "wb") as file:
        file.write(data)
    sign_anew(package, os.path.join(folder, "manifest.json"), before, sum_of(package, data))


def folders(lanyard, package, folder):
    if not package.weights._XXH3:  # pylint: disable=protected-access
        print("skip: libxxhash is not installed (Debian package libxxhash0)")
        return
    columns = [*COLUMNS, {"name": "not y", "kind": "label", "from": "y", "value": "0"}]
    train(lanyard, package, folder, "table", columns, name="first")
    out = os.path.join(folder, "out")
    call(lanyard, "up", os.path.join(folder, "first.json"), "--out", out, "--set",
         f"stream.files={os.path.join(folder, 'first.rows')}", "--set", "checkpoint.at_end=true")
    model, cells = package.Model(os.path.join(out, "model")), {"word": ["w1", "w2", "w3"], "x": [1, 2, 3]}
    saved = glob.glob(os.path.join(out, "checkpoints", "ckpt-*"))[0]
    assert np.array_equal(package.Model(saved).predict(cells), model.predict(cells))
    assert np.array_equal(package.read(saved).predict_cells(cells),
                          package.read(os.path.join(out, "model")).predict_cells(cells))
    sign_anew(package, os.path.join(saved, "manifest.json"), '"format": 3', '"format": 99')
    assert status_of(package, saved) == NO_MODEL, f"a later build's: {status_of(package, saved)}"
    try:
        package.read(saved)
        raise AssertionError("a later build's was read")
    except package.ModelError as error:
        assert "format 99" in str(error), error
    spoilt = os.path.join(folder, "spoilt")
    shutil.copytree(os.path.join(out, "model"), spoilt)
    spoil_bias(package, spoilt)
    problems, row = {}, "1,0.25,w1,3,2.5,1,2026-03-04 07:30:00,t1\n"
    got = package.Model(spoilt).predict_lines(2 * row, problems=problems)
    assert np.isnan(got).tolist() == 2 * [[True, False]] and sorted(problems) == [0, 1], (got, problems)
    print("a checkpoint is a model, that of a later build none; one label of NaN is told")


# ---- locales

def set_up(folder, names):
    """Those of the locales that can be made here, in a folder of their own; a new process knows them."""
    place = os.path.join(folder, "locales")
    os.makedirs(place, exist_ok=True)
    for name in names:
        subprocess.run(["localedef", "-i", name, "-f", "UTF-8", os.path.join(place, name + ".UTF-8")],
                       capture_output=True, check=False)
    return place


def locales(lanyard, package, folder):
    names = ["de_DE", "fr_FR", "tr_TR", "ar_SA", "fa_IR"]
    if os.environ.get("LOCPATH") is None:
        try:
            place = set_up(folder, names)
        except FileNotFoundError:
            print("skip: there is no localedef")
            return
        if not os.listdir(place):
            print("skip: localedef has no sources of locales (Debian package locales)")
            return
        os.environ["LOCPATH"] = place
        os.execv(sys.executable, [sys.executable, *sys.argv])
    out = {}
    for kind in ("table", "json"):
        out[kind] = train(lanyard, package, folder, kind, name=kind)
    asked = {"x": np.array([1 / 3, 0.5, 1e-7]), "value": [2.5, 0.1, 1234567.5], "word": ["w1", "W1", "I"]}
    rows = {"table": "1,0.25,w1,3,2.5,1,,t1\n1,1e-3,I,3,0.1,1,2026-03-04 07:30:00,\n",
            "json": '{"x":0.25,"value":2.5,"word":"w1"}\n{"x":7,"value":1234567.5,"flag":true}\n'}

    def answers():
        told = []
        for kind, model in out.items():
            told += [model.predict(asked), model.predict_lines(rows[kind])]
            other = package.Model(os.path.join(folder, kind, "model"))
            told += [other.predict(asked), np.array([other.iteration, other.samples, other.trained_s])]
            problems = {}
            model.predict_lines("1,2\n{}", problems=problems)
            told.append(np.array(list(problems.values())))
        return told

    locale.setlocale(locale.LC_ALL, "C")
    want, tried = answers(), []
    for name in names:
        try:
            locale.setlocale(locale.LC_ALL, name + ".UTF-8")
        except locale.Error:
            continue
        tried.append(name)
        point = locale.localeconv()["decimal_point"]
        in_thread = []
        thread = threading.Thread(target=lambda kept=in_thread: kept.append(answers()))
        thread.start()
        for how, got in (("", answers()), (" on another thread", (thread.join(), in_thread[0])[1])):
            for a, b in zip(want, got):
                assert np.array_equal(a, b), f"{name}{how}: {b}, in C {a}"
        seen = []  # what is called back is called in the host's locale, and finds it again afterwards
        # pylint: disable=protected-access
        note = package._Told(lambda *_: seen.append(locale.localeconv()["decimal_point"]))
        room, count = np.empty(4, np.float32), package.ctypes.c_size_t()
        package._lib().lanyard_score_lines_as(
            out["table"]._model, None, 0, b"no\n", 3, package._pointer(room, package.ctypes.c_float), 4,
            package.ctypes.byref(count), note, None, None, 0)
        assert seen == [point] == [locale.localeconv()["decimal_point"]], f"{name}: called back in another: {seen}"
        done = subprocess.run([lanyard, "predict", os.path.join(folder, "table", "model"), "--set", "stream.files=-"],
                              input=rows["table"], capture_output=True, text=True, check=True,
                              env={**os.environ, "LC_ALL": name + ".UTF-8"})
        printed = np.array(done.stdout.split(), np.float32)
        assert np.array_equal(printed, want[1]), f"{name}: predict says {done.stdout}, expected {want[1]}"
    if tried:
        print(f"the same in {tried}")
    else:
        print("skip: none of these locales could be set")


def main():
    command, lanyard, os.environ["LANYARD_LIBRARY"], folder = sys.argv[1:]
    import lanyard as package
    try:
        {"missing": missing, "lines": lines, "folders": folders, "locale": locales}[command](lanyard, package, folder)
    except AssertionError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
