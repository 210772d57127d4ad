"""A model as an ONNX graph: from keys and dense features to probabilities (docs/PYTHON.md, "ONNX").

Rows are a constant that the graph gathers from. A key that has no row gets the one that training starts from, as
everywhere else. Needs the package onnx.
"""
import numpy as np

from .weights import ID_MISSING, SCALE_LIMIT, ModelError, _classes, _criteo_columns, _tables

NO_KEY = -1  # in the place of a key that a sample does not have
OPSET = 18   # the first with BitwiseAnd
ML_OPSET = 2  # LabelEncoder of integers


def columns_of_fields(config):
    """The columns that are fields, in their order."""
    stream = config["stream"]
    if config["model"]["name"] == "graphsage":
        raise ModelError("graphsage is not exported to ONNX: what it looks up depends on the edges of a sample")
    if stream["format"] == "criteo":
        columns = _criteo_columns()
    elif stream["format"] in ("table", "json"):
        columns = stream["table"]["columns"]
    else:
        raise ModelError(f"stream.format {stream['format']}: only models of table, json and criteo, whose samples have "
                         "columns, are exported to ONNX")
    return [column for column in columns if column["kind"] in ("categorical", "multi")]


def widths_of(config):
    """How many keys a sample has at most, by field."""
    return [column.get("values_max", 8) if column["kind"] == "multi" else 1 for column in columns_of_fields(config)]


def padded(config, keys):
    """samples x widths, int64: the keys of each field, then NO_KEY."""
    widths = widths_of(config)
    first = np.concatenate([[0], np.cumsum(widths)]).astype(int)
    out = np.full((len(keys), first[-1]), NO_KEY, np.int64)
    for sample, own in enumerate(keys):
        taken = [0] * len(widths)
        for key in own:
            field = int(key) >> 56
            out[sample, first[field] + taken[field]] = np.uint64(key).view(np.int64)
            taken[field] += 1
    return out


class _Graph:
    """Nodes one after the other; what adds one returns the name of its output."""

    def __init__(self, onnx):
        self._helper, self._arrays, self._types = onnx.helper, onnx.numpy_helper, onnx.TensorProto
        self.nodes, self.constants = [], []

    def constant(self, value, dtype=np.float32):
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._arrays.from_array(np.ascontiguousarray(value, dtype), name))
        return name

    def ints(self, *values):
        return self.constant(values, np.int64)

    def add(self, operator, *inputs, **attributes):
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def cast(self, value, kind):
        return self.add("Cast", value, to=getattr(self._types, kind))

    def dense_layer(self, x, weight, bias):
        return self.add("Add", self.add("MatMul", x, self.constant(weight.T)), self.constant(bias))

    def mlp(self, weights, name, x):
        layer = 0
        while f"{name}.{layer}.weight" in weights.dense:
            x = self.add("Relu", self.dense_layer(x, weights.dense[f"{name}.{layer}.weight"],
                                                  weights.dense[f"{name}.{layer}.bias"]))
            layer += 1
        return x

    def concat(self, *parts, axis=1):
        parts = [part for part in parts if part]
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=axis)

    def part(self, x, first, end):
        """Of axis 1."""
        return self.add("Slice", x, self.ints(first), self.ints(end), self.ints(1))

    def sum(self, x, axis, keeps=0):
        return self.add("ReduceSum", x, self.ints(axis), keepdims=keeps)

    def flat(self, x, width):
        return self.add("Reshape", x, self.ints(-1, width))


def _scaled(g, weights):
    x = "dense"
    scale = weights.scale
    if "scale.offset" in scale:
        x = g.add("Sub", x, g.constant(scale["scale.offset"].astype(np.float64).sum(0), np.float64))
    x = g.cast(x, "FLOAT")
    if not scale:
        return x
    mean = scale["scale.mean_less_offset" if "scale.offset" in scale else "scale.mean"]
    factor = scale["scale.factor"]
    x = g.add("Mul", g.add("Sub", x, g.constant(mean)), g.constant(factor))
    x = g.add("Where", g.constant(factor > 0, bool), x, g.constant(0))
    return g.add("Clip", x, g.constant(-SCALE_LIMIT), g.constant(SCALE_LIMIT))


def _row_keys(g, weights, widths):
    """Keys of rows, and where there is none: of fields that share rows (stream.tables) keys become the table's."""
    no_key = g.add("Equal", "keys", g.ints(NO_KEY))
    tables = _tables(weights.config)
    if tables is None:
        return "keys", no_key
    of_place = np.repeat(np.arange(len(widths)), widths)
    missing_id = g.constant(ID_MISSING, np.int64)
    number = g.add("BitwiseAnd", "keys", missing_id)
    missing = g.add("Equal", number, missing_id)
    own = g.add("Sub", number, g.constant(tables[1][of_place].view(np.int64), np.int64))
    own = g.add("Where", missing, number, g.add("BitwiseAnd", own, missing_id))
    row_keys = g.add("BitwiseOr", own, g.constant((tables[0][of_place] << np.uint64(56)).view(np.int64), np.int64))
    left_out = g.add("And", missing, g.constant(tables[2][of_place], bool))
    return row_keys, g.add("Or", no_key, left_out)


def _initial_rows(g, weights, row_keys):
    """As weights.initial_rows, in the graph. Products of int64 and uint64 have the same bits."""
    def shifted(x, by):
        right = g.add("BitShift", g.cast(x, "UINT64"), g.constant(by, np.uint64), direction="RIGHT")
        return g.cast(right, "INT64")

    def mix(x):
        for by, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = g.add("BitwiseXor", x, shifted(x, by))
            x = g.add("Mul", x, g.constant(np.uint64(factor).view(np.int64), np.int64))
        return g.add("BitwiseXor", x, shifted(x, 31))

    dim = weights.values.shape[1]
    seed = mix(g.constant([weights.config["seed"]], np.int64))
    start = g.add("Unsqueeze", mix(g.add("Add", row_keys, seed)), g.ints(2))
    with np.errstate(over="ignore"):
        steps = np.arange(1, dim + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = mix(g.add("Add", start, g.constant(steps.view(np.int64), np.int64)))
    total = g.constant(-2 * 65535, np.int64)
    for by in (0, 16, 32, 48):
        total = g.add("Add", total, g.add("BitwiseAnd", shifted(bits, by), g.constant(0xFFFF, np.int64)))
    unit = np.float32(weights.config["model"]["init_scale"]) / np.float32(37837.2266)
    return g.add("Mul", g.cast(total, "FLOAT"), g.constant(unit))


def _rows(g, weights, widths):
    """samples x places x dim, zeros where there is no key; and which of them count in a mean."""
    row_keys, no_key = _row_keys(g, weights, widths)
    keys, values = weights.keys, weights.values
    if not len(keys):
        keys, values = np.zeros(1, np.uint64), np.zeros((1, values.shape[1]), np.float32)
    number = g.add("LabelEncoder", row_keys, domain="ai.onnx.ml", keys_int64s=keys.view(np.int64).tolist(),
                   values_int64s=list(range(len(keys))), default_int64=-1)
    found, counted = g.add("Greater", number, g.ints(-1)), g.add("Not", no_key)
    rows = g.add("Gather", g.constant(values), g.add("Max", number, g.ints(0)), axis=0)
    admits = weights.config.get("rows", {})
    if admits.get("admit", 1) > 1:
        counted = g.add("And", counted, found)
    fresh = g.constant(0) if admits.get("admit", 1) > 1 or admits.get("admit_share", 1) < 1 else \
        _initial_rows(g, weights, row_keys)
    rows = g.add("Where", g.add("Unsqueeze", found, g.ints(2)), rows, fresh)
    return g.add("Where", g.add("Unsqueeze", no_key, g.ints(2)), g.constant(0), rows), counted


def _pooled(g, weights, widths, rows, counted):
    """samples x fields x dim."""
    if max(widths) == 1:
        return rows
    parts, first = [], 0
    for width in widths:
        total = g.sum(g.part(rows, first, first + width), 1, 1)
        if weights.config["model"].get("pooling", "sum") == "mean":
            many = g.sum(g.cast(g.part(counted, first, first + width), "FLOAT"), 1, 1)
            total = g.add("Div", total, g.add("Unsqueeze", g.add("Max", many, g.constant(1)), g.ints(2)))
        parts.append(total)
        first += width
    return g.concat(*parts)


def _attended(g, weights, widths, rows, pooled):
    """Of din: the sequence's rows, weighed, in the place of their sum."""
    names = [column["name"] for column in columns_of_fields(weights.config)]
    sizes = weights.config["model"]
    sequence, target = names.index(sizes["sequence"]), names.index(sizes["target"])
    first = sum(widths[:sequence])
    h = g.part(rows, first, first + widths[sequence])
    t = g.part(pooled, target, target + 1)
    t = g.add("Expand", t, g.add("Shape", h))
    unit = g.mlp(weights, "attention", g.concat(h, t, g.add("Mul", h, t), axis=2))
    share = g.dense_layer(unit, weights.dense["attention.output.weight"], weights.dense["attention.output.bias"])
    whole = g.sum(g.add("Mul", share, h), 1, 1)
    parts = [g.part(pooled, f, f + 1) if f != sequence else whole for f in range(len(widths))]
    return g.concat(*parts)


def _output(g, weights, *parts):
    return g.dense_layer(g.concat(*parts), weights.dense["output.weight"], weights.dense["output.bias"])


def _wdl(g, weights, v, flat, x):
    deep = weights.config["model"]["deep_input"] == "all"
    return _output(g, weights, g.mlp(weights, "mlp", g.concat(flat, x) if deep else x), flat)


def _dfm(g, weights, v, flat, x):
    square = g.add("Mul", g.sum(v, 1), g.sum(v, 1))
    pairs = g.sum(g.add("Sub", square, g.sum(g.add("Mul", v, v), 1)), 1, 1)
    pairs = g.add("Mul", pairs, g.constant(0.5))
    return g.add("Add", _output(g, weights, g.mlp(weights, "mlp", g.concat(flat, x)), flat, x), pairs)


def _dcn(g, weights, v, flat, x):
    first = at = g.concat(flat, x)
    for layer in range(weights.config["model"]["cross_layers"]):
        if weights.config["model"]["cross"] == "vector":
            w, b = weights.dense["cross.weight"][layer], weights.dense["cross.bias"][layer]
            crossed = g.add("Mul", first, g.add("MatMul", at, g.constant(w[:, None])))
            at = g.add("Add", g.add("Add", crossed, g.constant(b)), at)
        else:
            w, b = weights.dense[f"cross.{layer}.weight"], weights.dense[f"cross.{layer}.bias"]
            at = g.add("Add", g.add("Mul", first, g.dense_layer(at, w, b)), at)
    return _output(g, weights, at, g.mlp(weights, "mlp", first))


def _dlrm(g, weights, v, flat, x):
    own = g.mlp(weights, "bottom", x)
    vectors = g.concat(v, g.add("Unsqueeze", own, g.ints(1)))
    count = len(widths_of(weights.config)) + 1
    products = g.add("MatMul", vectors, g.add("Transpose", vectors, perm=[0, 2, 1]))
    a, b = np.tril_indices(count, -1)
    chosen = g.add("Gather", g.flat(products, count * count), g.constant(a * count + b, np.int64), axis=1)
    return _output(g, weights, g.mlp(weights, "top", g.concat(own, chosen)))


def _ncf(g, weights, v, flat, x):
    k = weights.values.shape[1] // 2
    product = g.add("Mul", g.part(flat, 0, k), g.part(flat, 3 * k, 4 * k))
    return _output(g, weights, product, g.mlp(weights, "mlp", g.part(flat, k, 3 * k)))


def _din(g, weights, v, flat, x):
    return _output(g, weights, g.mlp(weights, "mlp", g.concat(flat, x)))


_LOGITS = {"wdl": _wdl, "dfm": _dfm, "dcn": _dcn, "dlrm": _dlrm, "ncf": _ncf, "din": _din}


def _probabilities(g, weights, z):
    stream = weights.config["stream"]
    if _classes(stream):
        return g.add("Softmax", z, axis=1)
    p = g.add("Sigmoid", z)
    share = stream.get("negatives_keep", 1) or 1
    if share == 1:
        return p
    p = g.cast(p, "DOUBLE")
    less = g.add("Div", g.add("Sub", g.constant(1, np.float64), p), g.constant(share, np.float64))
    return g.cast(g.add("Div", p, g.add("Add", p, less)), "FLOAT")


def to_onnx(weights, dense_count):
    """The graph of weights.Model, as onnx.ModelProto."""
    widths = widths_of(weights.config)
    try:
        import onnx
    except ImportError as error:
        raise ImportError(f"to_onnx() needs the package onnx (pip install onnx): {error}") from None
    helper, kinds = onnx.helper, onnx.TensorProto
    g = _Graph(onnx)
    rows, counted = _rows(g, weights, widths)
    v = _pooled(g, weights, widths, rows, counted)
    if weights.config["model"]["name"] == "din":
        v = _attended(g, weights, widths, rows, v)
    flat = g.flat(v, len(widths) * weights.values.shape[1])
    x = _scaled(g, weights) if dense_count else ""
    p = _probabilities(g, weights, _LOGITS[weights.config["model"]["name"]](g, weights, v, flat, x))
    outputs = len(weights.dense["output.bias"])
    if outputs == 1:
        p = g.add("Reshape", p, g.ints(-1))
    g.nodes.append(helper.make_node("Identity", [p], ["probabilities"]))
    inputs = [helper.make_tensor_value_info("keys", kinds.INT64, ["samples", sum(widths)])]
    if dense_count:
        inputs.append(helper.make_tensor_value_info("dense", kinds.DOUBLE, ["samples", dense_count]))
    shape = ["samples"] if outputs == 1 else ["samples", outputs]
    graph = helper.make_graph(g.nodes, "lanyard", inputs,
                              [helper.make_tensor_value_info("probabilities", kinds.FLOAT, shape)], g.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="lanyard", ir_version=8)
    onnx.checker.check_model(model)
    return model
