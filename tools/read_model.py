#!/usr/bin/env python3
"""Reads a model folder or a checkpoint (docs/MODEL_FORMAT.md) into numpy arrays.

    from read_model import read_model
    model = read_model("out/model")
    model.keys      uint64, one per row; table = keys >> 56, id = keys & (2**56 - 1); a field's table
                    is its own number, or with stream.tables that of the first field that shares it
    model.versions  uint32
    model.values    float32, rows x dim
    model.state     float32, rows x state floats
    model.dense     dict: name -> float32 array
    model.scale     dict: "scale.mean", "scale.factor" (docs/MODEL_FORMAT.md has others), {} where dense features stay as they are
    model.config    config.json
    model.meta      what manifest.json holds, {} where there is none (models of version 0.1.0)
    model.lookup(keys) -> indices of rows, -1 where there is none
    model.predict(dense, keys) -> predictions, those of `lanyard eval` but for rounding
    model.features(cells) -> dense, keys of samples whose cells are known by name, as text
    model.predict_cells(cells) -> predictions of them
    model.trained_s when the last of its samples were trained

As a program it prints a summary. Checksums are verified where libxxhash.so.0 is installed.
"""

import ctypes
import ctypes.util
import datetime
import glob
import json
import math
import os
import re
import sys

try:
    import numpy as np
except ImportError:
    if __name__ == "__main__":
        sys.exit("read_model.py: needs numpy (Debian package python3-numpy)")
    raise

SCALE_LIMIT = np.float32(10)  # deviations from the mean
ROWS_HEADER = np.dtype([("magic", "S8"), ("version", "<u4"), ("header_bytes", "<u4"),
                        ("schema", "<u8"), ("row_count", "<u8"), ("shard", "<u4"),
                        ("shard_count", "<u4"), ("dim", "<u4"), ("state_floats", "<u4"),
                        ("optimizer", "<u4"), ("block_rows", "<u4"), ("iteration", "<u4"),
                        ("base", "<u4"), ("checksum", "<u8")])
# Version 3: of a checkpoint of changes after rows of older ones have ended.
ROWS_HEADER_FLOOR = np.dtype(ROWS_HEADER.descr[:-1] + [("floor", "<u4"), ("unused", "<u4"),
                                                       ("checksum", "<u8")])
DENSE_HEADER = np.dtype([("magic", "S8"), ("version", "<u4"), ("count", "<u4"),
                         ("file_bytes", "<u8"), ("checksum", "<u8")])
DENSE_ENTRY = np.dtype([("name", "S64"), ("rank", "<u4"), ("reserved", "<u4"), ("shape", "<u8", 4),
                        ("offset", "<u8"), ("value_count", "<u8"), ("checksum", "<u8")])
assert ROWS_HEADER.itemsize == 72 and DENSE_HEADER.itemsize == 32 and DENSE_ENTRY.itemsize == 128


class ModelError(Exception):
    """A file is not what it should be; the message names it."""


def _load_xxhash():
    name = ctypes.util.find_library("xxhash") or "libxxhash.so.0"
    try:
        function = ctypes.CDLL(name).XXH3_64bits
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_uint64
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return function


_XXH3 = _load_xxhash()


def _check(path, what, array, checksum):
    """array: contiguous bytes (uint8)."""
    if _XXH3 and _XXH3(array.ctypes.data, array.nbytes) != int(checksum):
        raise ModelError(f"{path}: {what} is damaged (checksum)")


def _load_zstd():
    name = ctypes.util.find_library("zstd") or "libzstd.so.1"
    try:
        function = ctypes.CDLL(name).ZSTD_decompress
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_size_t
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
    return function


_ZSTD = _load_zstd()


def _unpack(path, index, stored, size):
    if not _ZSTD:
        raise ModelError(f"{path}: is packed, and libzstd is not installed")
    columns = np.empty(size, np.uint8)
    stored = np.ascontiguousarray(stored)
    if _ZSTD(columns.ctypes.data, size, stored.ctypes.data, stored.nbytes) != size:
        raise ModelError(f"{path}: block {index} is damaged (zstd)")
    return columns


def _header_of(path, data, dtype, magic, version=1):
    if len(data) < dtype.itemsize:
        raise ModelError(f"{path}: {len(data)} bytes are too few for a header")
    header = data[:dtype.itemsize].view(dtype)[0]
    if header["magic"] != magic:
        raise ModelError(f"{path}: not a file that starts with {magic.decode()}")
    if header["version"] != version:
        raise ModelError(f"{path}: format version {header['version']}, this reader knows {version}")
    return header


def read_rows(path):
    """Returns (header as dict, keys, versions, values, state)."""
    data = np.fromfile(path, dtype=np.uint8)
    has_floor = len(data) > 8 and data[8] == 3
    dtype = ROWS_HEADER_FLOOR if has_floor else ROWS_HEADER
    header = _header_of(path, data, dtype, b"RLYNROWS", 3 if has_floor else 2)
    _check(path, "the header", data[:dtype.itemsize - 8], header["checksum"])
    count, dim = int(header["row_count"]), int(header["dim"])
    floats, block_rows = dim + int(header["state_floats"]), int(header["block_rows"])
    keys = np.empty(count, np.uint64)
    versions = np.empty(count, np.uint32)
    rows = np.empty((count, floats), np.float32)
    at, index = dtype.itemsize, 0
    for first in range(0, count, block_rows):
        n = min(block_rows, count - first)
        size = (n * (8 + 4 + 4 * floats) + 7) // 8 * 8
        head = data[at:at + 24]
        stored = int(head[16:20].view("<u4")[0]) if len(head) == 24 else 0
        block = data[at:at + 24 + stored]
        if len(head) != 24 or len(block) != 24 + stored:
            raise ModelError(f"{path}: ends early, within rows {first} to {first + n - 1}")
        _check(path, f"block {index}", block[8:], head[:8].view("<u8")[0])
        if tuple(head[8:16].view("<u4")) != (n, index):
            raise ModelError(f"{path}: block {index} is not where it belongs")
        columns = _unpack(path, index, block[24:], size) if head[20] & 1 else block[24:]
        if len(columns) != size:
            raise ModelError(f"{path}: block {index} has {len(columns)} bytes, expected {size}")
        keys[first:first + n] = columns[:8 * n].view("<u8")
        versions[first:first + n] = columns[8 * n:12 * n].view("<u4")
        values = columns[12 * n:12 * n + 4 * n * floats].view("<f4")
        rows[first:first + n] = values.reshape(n, floats)
        at, index = at + 24 + stored, index + 1
    if at != len(data):
        raise ModelError(f"{path}: {len(data) - at} bytes after the last row")
    info = {name: header[name].item() for name in dtype.names if name != "magic"}
    return info, keys, versions, rows[:, :dim], rows[:, dim:]


def read_tensors(path):
    """Returns a dict of arrays, in the order of the file: the layout of safetensors."""
    data = np.fromfile(path, dtype=np.uint8)
    if data[:8].tobytes() == b"RLYNTENS":
        return _read_old_tensors(path, data)
    begin = 8 + int(data[:8].view("<u8")[0]) if len(data) >= 8 else 0
    try:
        header = json.loads(data[8:begin].tobytes()) if 8 < begin <= len(data) else None
        checksum = header.pop("__metadata__")["xxh3"]
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: its header is damaged, or not one of lanyard") from error
    hashed = 8 + data[8:begin].tobytes().index(checksum.encode()) + len(checksum)
    _check(path, "the file", data[hashed:], int(checksum, 16))
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        raw = data[begin + first:begin + last]
        if entry["dtype"] != "F32" or len(raw) != 4 * int(np.prod(entry["shape"], dtype=np.uint64)):
            raise ModelError(f"{path}: shape and place of {name} do not fit")
        tensors[name] = raw.view("<f4").reshape(entry["shape"])
    return tensors


def _read_old_tensors(path, data):
    """Files of version 1, as programs up to 0.1.0 wrote them."""
    header = _header_of(path, data, DENSE_HEADER, b"RLYNTENS")
    end = DENSE_HEADER.itemsize + int(header["count"]) * DENSE_ENTRY.itemsize
    if header["file_bytes"] != len(data) or end > len(data):
        raise ModelError(f"{path}: {len(data)} bytes, the header says {header['file_bytes']}")
    directory = data[DENSE_HEADER.itemsize:end]
    _check(path, "the directory", directory, header["checksum"])
    tensors = {}
    for entry in directory.view(DENSE_ENTRY):
        name, offset = entry["name"].decode(), int(entry["offset"])
        shape = tuple(int(n) for n in entry["shape"][:entry["rank"]])
        raw = data[offset:offset + 4 * int(entry["value_count"])]
        if len(raw) != 4 * int(np.prod(shape, dtype=np.uint64)):
            raise ModelError(f"{path}: shape and place of {name} do not fit")
        _check(path, name, raw, entry["checksum"])
        tensors[name] = raw.view("<f4").reshape(shape)
    return tensors


class Model:
    """All rows of all shards, the dense part, and what predicting takes besides."""

    def __init__(self, keys, versions, values, state, optimizer, dense, scale, config, meta, written_s=0.0):
        self.keys, self.versions, self.values, self.state = keys, versions, values, state
        self.optimizer, self.dense, self.meta = optimizer, dense, meta
        self.scale, self.config, self._written_s = scale, config, written_s
        self._order = np.argsort(keys)
        if np.any(np.diff(keys[self._order].view(np.int64)) == 0):
            raise ModelError("a key has two rows")

    def lookup(self, keys):
        """Row numbers of keys, -1 where a key has no row."""
        keys = np.asarray(keys, np.uint64)
        if not len(self.keys):
            return np.full(keys.shape, -1)
        at = np.searchsorted(self.keys, keys, sorter=self._order)
        row = self._order[np.minimum(at, len(self.keys) - 1)]
        return np.where(self.keys[row] == keys, row, -1)

    def row_keys(self, keys):
        """Keys of the rows that keys of fields name: with stream.tables fields share rows."""
        keys = np.asarray(keys, np.uint64)
        tables = _tables(self.config)
        if tables is None:
            return keys
        field, number = keys >> np.uint64(56), keys & np.uint64(ID_MISSING)
        own = number - tables[1][field]
        own = np.where(number == ID_MISSING, number, own & np.uint64(ID_MISSING))
        return tables[0][field] << np.uint64(56) | own

    def rows(self, keys):
        """Values of keys of rows, of any shape; a key without a row has those that training starts from, or,
        of a model with rows.admit above 1 or rows.admit_share below it, zeros."""
        keys = np.asarray(keys, np.uint64)
        found = self.lookup(keys)
        values = self.values[found]
        missing = found < 0
        admits = self.config.get("rows", {})
        if admits.get("admit", 1) > 1 or admits.get("admit_share", 1) < 1:
            values[missing] = 0
            return values
        values[missing] = initial_rows(keys[missing], self.config["seed"],
                                       self.config["model"]["init_scale"], self.values.shape[1])
        return values

    def scaled(self, dense):
        """Dense features as the model sees them, from those that were read (after `transform`)."""
        dense = np.asarray(dense, np.float64)
        if "scale.offset" in self.scale:  # of features that are far from zero
            dense = dense - self.scale["scale.offset"].astype(np.float64).sum(0)
        dense = dense.astype(np.float32)
        if not self.scale:
            return dense
        mean = self.scale["scale.mean_less_offset" if "scale.offset" in self.scale else "scale.mean"]
        factor = self.scale["scale.factor"]
        with np.errstate(over="ignore", invalid="ignore"):
            x = np.where(factor > 0, (dense - mean) * factor, np.float32(0))
        return np.clip(x, -SCALE_LIMIT, SCALE_LIMIT)

    def pooled(self, keys):
        """samples x fields x dim. keys: samples x fields, or a list of every sample's, in which a
        field may have several."""
        if isinstance(keys, np.ndarray) and _tables(self.config) is None:
            return self.rows(self.row_keys(keys)).astype(np.float64)
        samples, fields, flat, field_count = self._lookups(keys)
        shape = (len(keys), field_count)
        sums = np.zeros(shape + self.values.shape[1:])
        np.add.at(sums, (samples, fields), self.rows(flat))
        if self.config["model"].get("pooling", "sum") == "mean":
            counts = np.zeros(shape)
            leaves_out = self.config.get("rows", {}).get("admit", 1) > 1
            counted = self.lookup(flat) >= 0 if leaves_out else 1
            np.add.at(counts, (samples, fields), counted)
            sums /= np.maximum(counts, 1)[:, :, None]
        return sums

    def _lookups(self, keys):
        """Of every look-up its sample, field and row's key; and the number of fields."""
        samples = np.repeat(np.arange(len(keys)), [len(own) for own in keys])
        flat = np.concatenate([np.asarray(own, np.uint64) for own in keys])
        fields = (flat >> np.uint64(56)).astype(np.int64)
        tables, field_count = _tables(self.config), int(fields.max()) + 1
        if tables is not None:
            there = ~(tables[2][fields] & ((flat & np.uint64(ID_MISSING)) == ID_MISSING))
            samples, fields, flat = samples[there], fields[there], flat[there]
        return samples, fields, self.row_keys(flat), field_count

    def predict(self, dense, keys):
        """Probabilities of label 1; of a model of several labels or classes samples x so many. dense: samples x features as they were read, after `transform`;
        keys: samples x fields, field << 56 | id, one key per field; or a list of every sample's."""
        name = self.config["model"]["name"]
        rows = self._neighbourhoods(keys) if name == "graphsage" else self.pooled(keys)
        x = self.scaled(dense).astype(np.float64).reshape(len(rows), -1)
        if name == "din":
            rows = self._attended(rows, keys)
        z = _LOGITS[name](self, rows, x)
        if _classes(self.config.get("stream", {})):
            e = np.exp(z - z.max(1, keepdims=True))
            return e / e.sum(1, keepdims=True)
        p = 1 / (1 + np.exp(-z))
        share = self.config.get("stream", {}).get("negatives_keep", 1) or 1
        return p if share == 1 else p / (p + (1 - p) / share)

    def _neighbourhoods(self, keys):
        """samples x 2 widths of the first layer: what it makes of a sample's node, and the mean of
        what it makes of the neighbours that are there."""
        samples, fields, flat, field_count = self._lookups(keys)
        admits = self.config.get("rows", {})
        if admits.get("admit", 1) > 1 or admits.get("admit_share", 1) < 1:
            there = self.lookup(flat) >= 0
            samples, fields, flat = samples[there], fields[there], flat[there]
        field_count, values = len(_fields(self.config["stream"])), self.rows(flat)
        fan_out, count = (field_count - 1) // 2, len(keys)

        def sums(chosen):
            total, many = np.zeros((count, fan_out + 1, values.shape[1])), np.zeros((count, fan_out + 1))
            at, which = chosen
            np.add.at(total, (samples[which], at), values[which])
            np.add.at(many, (samples[which], at), 1)
            return total / np.maximum(many, 1)[:, :, None], many > 0
        own = fields <= fan_out
        near, far = own & (fields > 0), ~own
        nodes, there = sums((fields[own], own))  # node 0 is the sample's own
        means, _ = sums((np.concatenate([np.zeros(near.sum(), int), fields[far] - fan_out]),
                         np.concatenate([np.flatnonzero(near), np.flatnonzero(far)])))
        h = self._mlp("inner", np.concatenate([nodes, means], 2))
        h *= there[:, :, None] | (np.arange(fan_out + 1) == 0)[None, :, None]
        others = h[:, 1:].sum(1) / np.maximum(there[:, 1:].sum(1), 1)[:, None]
        return np.concatenate([h[:, 0], others], 1)

    def _attended(self, rows, keys):
        """rows, with the sum of weighed rows in the place of the sequence field."""
        names, sizes = _fields(self.config["stream"]), self.config["model"]
        sequence, target = names.index(sizes["sequence"]), names.index(sizes["target"])
        samples, fields, flat, _ = self._lookups(keys)
        there = fields == sequence
        h, t = self.rows(flat[there]).astype(np.float64), rows[samples[there], target]
        unit = self._mlp("attention", np.concatenate([h, t, h * t], 1))
        weight, bias = self.dense["attention.output.weight"], self.dense["attention.output.bias"]
        rows = rows.copy()
        rows[:, sequence] = 0
        np.add.at(rows[:, sequence], samples[there], (unit @ weight[0] + bias[0])[:, None] * h)
        return rows

    @property
    def trained_s(self):
        """When the last samples were trained, in seconds since 1970; where the folder does not say, when it was
        written."""
        return self.meta.get("trained_s", self._written_s)

    def features(self, cells):
        """cells: name of a column -> its texts, "" or None where missing; of a column of several values, in
        JSON's format, lists. Returns dense (samples x features, as predict takes them) and a list of
        every sample's keys."""
        stream = self.config["stream"]
        count = len(next(iter(cells.values())))
        columns = stream["table"]["columns"] if stream["format"] in ("table", "json") else \
            _criteo_columns() if stream["format"] == "criteo" else None
        if columns is None:
            raise ModelError(f"stream.format {stream['format']}: samples have no cells")
        if stream["format"] == "json":  # an array is the cell of several values, and its text is one of them
            columns = [dict(column, separator="\x1f") for column in columns]
        names, wanted = _names(columns), _wanted(columns)
        texts, ids, dense, keys, field = {}, {}, [], [[] for _ in range(count)], 0
        for column, name in zip(columns, names):
            kind, made = column["kind"], sources_of(column)
            own = texts[made[0]] if len(made) == 1 else cells.get(name, [""] * count)
            texts[column["name"]] = own = ["" if is_missing(one) else one for one in own]
            if len(made) > 1:
                ids[column["name"]] = [_cross([ids[one][i] for one in made]) for i in range(count)]
            elif kind == "categorical" or column["name"] in wanted:
                ids[column["name"]] = [_id_of(column, text) for text in own]
            if kind == "dense":
                dense.append([_number_of(column, text) for text in own])
            elif kind in ("categorical", "multi"):
                for i in range(count):
                    many = _ids_of(column, own[i]) if kind == "multi" else [ids[column["name"]][i]]
                    keys[i] += [field << 56 | one for one in many]
                field += 1
        return np.array(dense, np.float64).T.reshape(count, -1), keys

    def predict_cells(self, cells):
        """Probabilities of label 1 of samples whose cells are known by name (see features)."""
        return self.predict(*self.features(cells))

    def _mlp(self, name, x):
        for layer in range(len(self.dense)):
            if f"{name}.{layer}.weight" not in self.dense:
                break
            x = x @ self.dense[f"{name}.{layer}.weight"].T + self.dense[f"{name}.{layer}.bias"]
            x = np.maximum(x, 0)
        return x

    def _output(self, *columns):
        """One logit per sample; of a model of several labels samples x labels."""
        x = np.concatenate(columns, 1)
        weight, bias = self.dense["output.weight"], self.dense["output.bias"]
        return x @ weight[0] + bias[0] if len(bias) == 1 else x @ weight.T + bias


# ---- from cells to numbers: docs/MODEL_FORMAT.md, "A prediction"

ID_MISSING = (1 << 56) - 1


def is_missing(value):
    """Whether it stands for a cell that is empty: None, NaN, NaT, NA of pandas, "" and the like."""
    try:
        return value is None or value == "" or bool(value != value)
    except TypeError:  # NA is neither itself nor something else
        return True
    except (ArithmeticError, ValueError):  # a signalling NaN; several values
        return not hasattr(value, "__len__")


def sources_of(column):
    """Names of the columns that it is made of."""
    made = column.get("from") or []
    return [made] if isinstance(made, str) else made


def _names(columns):
    """How each is called by who asks: by its name, its path, or the number of its cell in a line."""
    names, cells = [], 0
    for column in columns:
        cells += not sources_of(column)
        names.append(column["name"] or column.get("path") or str(cells))
    return names


def _wanted(columns):
    """Names of those that crosses are made of."""
    return {name for column in columns for name in sources_of(column) if len(sources_of(column)) > 1}


def _criteo_columns():
    return [{"name": f"I{i}", "kind": "dense", "transform": "log1p"} for i in range(1, 14)] + \
        [{"name": f"C{i}", "kind": "categorical", "id": "hexadecimal"} for i in range(1, 27)]


def _fields(stream):
    """Names of the fields, in their order."""
    if stream["format"] in ("table", "json"):
        return [column["name"] for column in stream["table"]["columns"]
                if column["kind"] in ("categorical", "multi")]
    if stream["format"] == "criteo":
        return [f"C{i}" for i in range(1, 27)]
    if stream["format"] == "libsvm":
        return [f"from {first}" for first in stream["libsvm"]["fields"]]
    raise ModelError(f"stream.tables: fields of stream.format {stream['format']} have no names here")


def _classes(stream):
    """Of how many classes the label is; 0: it is 0 or 1."""
    columns = stream.get("table", {}).get("columns", []) if stream.get("format") in ("table", "json") else []
    return max([column.get("classes", 0) for column in columns] or [0])


def _tables(config):
    """By field its table, what its ids are above those of the table, and whether the table is another's,
    so that a missing value has no row; None where none is shared."""
    stream = config.get("stream", {})
    if not stream.get("tables"):
        return None
    names = _fields(stream)
    own, borrowers = list(range(len(names))), []
    for pair in stream["tables"]:
        user, owner = next((names.index(pair[:at]), names.index(pair[at + 1:]))
                           for at, sign in enumerate(pair)
                           if sign == "=" and pair[:at] in names and pair[at + 1:] in names)
        low, high = sorted((own[user], own[owner]))
        borrowers.append(user)
        own = [low if one == high else one for one in own]
    first = stream["libsvm"]["fields"] if stream["format"] == "libsvm" else [0] * len(names)
    return (np.array(own, np.uint64),
            np.array([first[f] - first[own[f]] for f in range(len(names))], np.uint64),
            np.isin(range(len(names)), borrowers))


def _hash(data):
    if not _XXH3:
        raise ModelError("ids are hashes: libxxhash is not installed (Debian package libxxhash0)")
    number = _XXH3(data, len(data)) & ID_MISSING
    return number - (number == ID_MISSING)


def _cross(ids):
    return _hash(b"".join(one.to_bytes(8, "little") for one in ids))


def _ms_of(column, text):
    pattern = column.get("time_format", "unix")
    units = {"unix": 1000, "unix_ms": 1, "unix_us": 1e-3, "unix_ns": 1e-6}
    if pattern in units:
        return int(np.floor(_float(column, text) * units[pattern]))
    if pattern == "iso":
        time = _iso(text)
    else:
        if "%f" in pattern:  # microseconds are what Python reads
            text = re.sub(r"(\d{6})\d{1,3}", r"\1", text)
        if pattern.endswith("%z"):
            text = re.sub(r"([+-]\d\d)$", r"\g<1>00", re.sub(r"(?i)(UTC|GMT|Z)$", "+0000", text))
        time = datetime.datetime.strptime(text, pattern)
    zone = time.tzinfo or datetime.timezone.utc
    since = time.replace(tzinfo=zone) - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return since // datetime.timedelta(milliseconds=1)


def _iso(text):
    """What datetime.fromisoformat of older versions does not take is made what it takes."""
    day, clock, zone = re.fullmatch(r"(.{10})(?:[Tt ](\d.*?))?( ?(?:[Zz]|UTC|GMT|[+-]\d\d(?::?\d\d)?))?",
                                    text).groups()
    clock, _, fraction = (clock or "00").replace(",", ".").partition(".")
    clock = (clock + ":00:00")[:8] + "." + (fraction + "000000")[:6]
    zone = re.sub(r"[^0-9+-]", "", zone or "") or "+0000"
    return datetime.datetime.fromisoformat(f"{day}T{clock}{zone[:3]}:{zone[3:] or '00'}")


def _float(column, text):
    """A number as number_format says; with a point as JSON has it, too."""
    if not isinstance(text, str):
        return float(text)
    group, decimal = {"1234,5": ("", ","), "1,234.5": (",", "."), "1.234,5": (".", ","),
                      "1'234.5": ("'", "."), "1 234,5": (" ", ",")}.get(column.get("number_format"), ("", "."))
    text = text.strip(" $%\u20ac\u00a3\u00a5\u00a0")
    whole, _, rest = text.partition(decimal)
    if group and re.fullmatch(rf"[+-]?\d+(?:{re.escape(group)}\d\d\d)*", whole) and group not in rest:
        text = whole.replace(group, "") + ("." + rest if rest else "")
    elif decimal == "," and "." not in text:
        text = text.replace(",", ".")
    return float(text)


def _filled(column, text):
    return column.get("missing", "") if not text or text in column.get("nulls", []) else text


def _transformed(column, text):
    """Hour, weekday or bucket; None: the column has no such transform."""
    transform = column.get("transform", "none")
    if transform == "hour":
        return _ms_of(column, text) // 3600000 % 24
    if transform == "weekday":
        return (_ms_of(column, text) // 86400000 + 3) % 7  # 1970 began on a Thursday
    if transform == "bucket":
        return sum(edge <= _float(column, text) for edge in column["edges"])
    return None


def _number_of(column, text):
    text = _filled(column, text)
    if not text:
        return 0.0
    number = _transformed(column, text)
    if number is not None:
        return float(number)
    value = _float(column, text)
    if column.get("transform") == "log1p":
        return math.log1p(max(value, 0.0))
    return value


def _id_of(column, text):
    text = _filled(column, text)
    if not text:
        return ID_MISSING
    number = _transformed(column, text)
    if number is not None:
        return number
    if column.get("id") == "hexadecimal":
        return int(text, 16)
    if column.get("id") == "number":
        return int(text, 16 if text.lower().startswith("0x") else 10)
    return _hash(text.encode())


def _ids_of(column, cell):
    """Of a column of several values: equal ones once, of these the first values_max."""
    cell = cell if isinstance(cell, list) and cell else _filled(column, cell)
    values = cell if isinstance(cell, list) else cell.split(column.get("separator", "|"))
    ids = []
    for value in filter(None, values):
        if len(ids) == column.get("values_max", 8):
            break
        one = _id_of(dict(column, missing="", nulls=[]), value)
        if one not in ids:
            ids.append(one)
    return ids or [ID_MISSING]


# ---- predictions: docs/MODELS.md, "The models"

def initial_rows(keys, seed, scale, dim):
    """Values of rows that were never trained (rt_row_init): len(keys) x dim, float32."""
    def mix(x):  # splitmix64's finaliser
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))

    with np.errstate(over="ignore"):
        start = mix(keys + mix(np.array([seed], np.uint64)))[:, None]
        steps = np.arange(1, dim + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = mix(start + steps)
    total = sum((bits >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48))
    unit = np.float32(scale) / np.float32(37837.2266)
    return (total.astype(np.int64) - 2 * 65535).astype(np.float32) * unit


def _wdl(model, rows, dense):
    pooled = rows.reshape(len(rows), -1)
    deep = model.config["model"]["deep_input"] == "all"
    x = np.concatenate([pooled, dense], 1) if deep else dense
    return model._output(model._mlp("mlp", x), pooled)


def _dfm(model, rows, dense):
    pooled = rows.reshape(len(rows), -1)
    pairs = (np.square(rows.sum(1)) - np.square(rows).sum(1)).sum(1) / 2
    h = model._mlp("mlp", np.concatenate([pooled, dense], 1))
    z = model._output(h, pooled, dense)
    return z + pairs.reshape(z.shape[:1] + (1,) * (z.ndim - 1))  # the same for every label


def _dcn(model, rows, dense):
    first = np.concatenate([rows.reshape(len(rows), -1), dense], 1)
    x = first
    for layer in range(model.config["model"]["cross_layers"]):
        if model.config["model"]["cross"] == "vector":
            w, b = model.dense["cross.weight"][layer], model.dense["cross.bias"][layer]
            x = first * (x @ w)[:, None] + b + x
        else:
            w, b = model.dense[f"cross.{layer}.weight"], model.dense[f"cross.{layer}.bias"]
            x = first * (x @ w.T + b) + x
    return model._output(x, model._mlp("mlp", first))


def _dlrm(model, rows, dense):
    own = model._mlp("bottom", dense)
    vectors = np.concatenate([rows, own[:, None]], 1)
    a, b = np.tril_indices(vectors.shape[1], -1)
    products = np.einsum("nad,nbd->nab", vectors, vectors)[:, a, b]
    return model._output(model._mlp("top", np.concatenate([own, products], 1)))


def _ncf(model, rows, _dense):
    k, flat = rows.shape[2] // 2, rows.reshape(len(rows), -1)
    return model._output(flat[:, :k] * flat[:, 3 * k:], model._mlp("mlp", flat[:, k:3 * k]))


def _din(model, rows, dense):
    return model._output(model._mlp("mlp", np.concatenate([rows.reshape(len(rows), -1), dense], 1)))


def _graphsage(model, rows, _dense):
    return model._output(model._mlp("outer", rows))


_LOGITS = {"wdl": _wdl, "dfm": _dfm, "dcn": _dcn, "dlrm": _dlrm, "ncf": _ncf, "din": _din,
           "graphsage": _graphsage}


def _read_shards(folder):
    """All rows files of one folder: (header of the first, keys, versions, values, state)."""
    paths = sorted(glob.glob(os.path.join(glob.escape(folder), "rows-*-of-*.bin")))
    if not paths:
        raise ModelError(f"{folder}: holds no rows-*-of-*.bin")
    parts = [read_rows(path) for path in paths]
    first = parts[0][0]
    for path, part in zip(paths, parts):
        for name in ("schema", "dim", "state_floats", "optimizer", "shard_count", "base"):
            if part[0][name] != first[name]:
                raise ModelError(f"{path}: {name} {part[0][name]}, {paths[0]} has {first[name]}")
    if sorted(part[0]["shard"] for part in parts) != list(range(first["shard_count"])):
        raise ModelError(f"{folder}: {len(parts)} of {first['shard_count']} shards' files")
    return [first] + [np.concatenate([part[i] for part in parts]) for i in range(1, 5)]


def _put_over(old, new):
    """Rows of new replace those of old, and those below its floor have ended."""
    stays = ~np.isin(old[1], new[1]) & (old[2] >= new[0].get("floor", 0))
    return [new[0]] + [np.concatenate([old[i][stays], new[i]]) for i in range(1, 5)]


FORMAT = 3  # of manifest.json; 3: of a checkpoint, for planner.bin, which is not read here


def read_manifest(folder):
    """Reads manifest.json and looks whether all that it names is there, with its size and, of models,
    its sum. {} where there is none. Raises ModelError."""
    path = os.path.join(folder, "manifest.json")
    if not os.path.exists(path):
        return {}
    with open(path, "rb") as file:
        text = file.read()
    mark = b',\n  "checksum": "'
    signed = np.frombuffer(text[:text.rfind(mark)], np.uint8)
    try:
        meta = json.loads(text)
        _check(path, "the manifest", signed, int(meta["checksum"], 16))
        if not 1 <= meta["format"] <= FORMAT:
            raise ModelError(f"{path}: format {meta['format']}, this reader knows {FORMAT}")
        parts = [(part["name"], part["bytes"], part.get("xxh3")) for part in meta["parts"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is damaged: {error}") from error
    for name, size, checksum in parts:
        part = os.path.join(folder, name)
        if not os.path.exists(part):
            raise ModelError(f"{part}, which {path} names, is missing")
        if os.path.getsize(part) != size:
            raise ModelError(f"{part} has {os.path.getsize(part)} bytes, the manifest says {size}")
        if checksum:
            _check(part, "the file", np.fromfile(part, np.uint8), int(checksum, 16))
    return meta


def read_model(folder):
    """Reads all files of a folder; of a checkpoint, also those that it builds on. Raises ModelError
    or OSError."""
    meta = read_manifest(folder)
    rows = _read_shards(folder)
    if rows[0]["iteration"] and not meta:
        raise ModelError(f"{folder}: no manifest.json: this checkpoint was never completed")
    layers, base = [rows], rows[0]["base"]
    while base:
        parent = os.path.dirname(os.path.abspath(folder))
        layers.append(_read_shards(os.path.join(parent, f"ckpt-{base:012d}")))
        base = layers[-1][0]["base"]
    rows = layers.pop()
    while layers:
        rows = _put_over(rows, layers.pop())
    dense_path = os.path.join(folder, "dense.bin")
    dense = read_tensors(dense_path) if os.path.exists(dense_path) else {}
    scale_path, config_path = (os.path.join(folder, name) for name in ("scale.bin", "config.json"))
    scale = read_tensors(scale_path) if os.path.exists(scale_path) else {}
    config = {}
    if os.path.exists(config_path):
        with open(config_path, encoding="utf-8") as file:
            config = json.load(file)
    first, keys, versions, values, state = rows
    manifest = os.path.join(folder, "manifest.json")
    written_s = float(int(os.stat(manifest).st_mtime)) if meta else 0.0
    optimizer = config["optimizer"]["rows"]["name"] if config else f'number {first["optimizer"]}'
    return Model(keys, versions, values, state, optimizer, dense, scale, config, meta, written_s)


def main(arguments):
    if len(arguments) != 2:
        print(f"usage: {arguments[0]} MODEL_FOLDER", file=sys.stderr)
        return 2
    try:
        model = read_model(arguments[1])
    except (ModelError, OSError) as error:
        print(f"read_model: {error}", file=sys.stderr)
        return 1
    fields, counts = np.unique(model.keys >> np.uint64(56), return_counts=True)
    print(f"{len(model.keys)} rows of {model.values.shape[1]} values, optimizer {model.optimizer} "
          f"({model.state.shape[1]} floats of state), {len(fields)} fields")
    if len(model.keys):
        print(f"values: mean {model.values.mean():.3g}, deviation {model.values.std():.3g}; "
              f"latest version {model.versions.max()}; most rows in field "
              f"{fields[counts.argmax()]} ({counts.max()})")
    for name, array in model.dense.items():
        print(f"dense {name}: {' x '.join(str(n) for n in array.shape) or 'scalar'}, "
              f"deviation {array.std() if array.size else 0:.3g}")
    if not _XXH3:
        print("checksums not verified: libxxhash is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
