"""Predictions of models that Lanyard trained.

    import lanyard
    model = lanyard.Model("run1/model")
    model.columns                              # names, in order; .kind of each
    model.labels                               # likewise, of what it predicts
    model.iteration, model.samples, model.age_s   # which version it is, as `lanyard serve` says it
    model.predict({"I1": [1, 5], "C1": ["68fd1e64", ""]})    # float32, probabilities of label 1
    model.weights                              # rows, dense part and scale as numpy arrays
    model.to_onnx("model.onnx")                # a graph that takes model.onnx_inputs(...)
    lanyard.Classifier().fit(frame, y)         # trains: fit, partial_fit, predict_proba of scikit-learn

predict() goes through liblanyard (lanyard.h), the program's own code; it is looked for where
LANYARD_LIBRARY says, beside this file, where the system looks for libraries, and in
/usr/local/lib. Any number of threads may predict with one model; the library runs without Python's
lock. read() is tools/read_model.py and needs no library.
"""

import ctypes
import ctypes.util
import os
import time
import warnings

import numpy as np

from .cells import array_of, columns_of, texts_of, values_of
from .weights import ModelError, read_model as read

__all__ = ["Classifier", "Column", "Model", "ModelError", "TrainingError", "read"]

ABI = 1


class _Column(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_int), ("stride", ctypes.c_size_t),
                ("values", ctypes.c_void_p)]


_Told = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def _candidates():
    if os.environ.get("LANYARD_LIBRARY"):
        return [os.environ["LANYARD_LIBRARY"]]
    name = f"liblanyard.so.{ABI}"
    here = os.path.dirname(os.path.abspath(__file__))
    tree = os.path.join(here, "../../build/liblanyard.so")
    return [os.path.join(here, name), *([tree] if os.path.exists(tree) else []), name, f"/usr/local/lib/{name}"]


def _open():
    reasons = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            break
        except OSError as error:
            reasons.append(str(error))
    else:
        raise ImportError("liblanyard is not there (`make install` puts it into PREFIX/lib; "
                          "LANYARD_LIBRARY may name it): " + "; ".join(reasons))
    size, text = ctypes.c_size_t, ctypes.c_char_p
    floats, place = ctypes.POINTER(ctypes.c_float), ctypes.c_void_p
    if library.lanyard_abi() != ABI:
        raise ImportError(f"{path}: is version {library.lanyard_abi()}, expected {ABI}")
    library.lanyard_load.argtypes = [text, ctypes.POINTER(place), text, size]
    library.lanyard_free.argtypes = [place]
    library.lanyard_free.restype = None
    library.lanyard_column_name.argtypes = [place, size]
    library.lanyard_column_name.restype = text
    library.lanyard_column_kind.argtypes, library.lanyard_column_kind.restype = [place, size], text
    library.lanyard_column_separator.argtypes = [place, size]
    library.lanyard_column_separator.restype = ctypes.c_ubyte
    library.lanyard_format.argtypes, library.lanyard_format.restype = [place], text
    numbers = ctypes.POINTER(ctypes.c_uint64)
    library.lanyard_version.argtypes = [place, numbers, numbers, ctypes.POINTER(ctypes.c_double)]
    library.lanyard_version.restype = None
    for count in (library.lanyard_dense_count, library.lanyard_field_count):
        count.argtypes, count.restype = [place], size
    library.lanyard_label_count.argtypes, library.lanyard_label_count.restype = [place], size
    library.lanyard_label_name.argtypes = [place, size]
    library.lanyard_label_name.restype = text
    library.lanyard_score.argtypes = [place, ctypes.POINTER(_Column), size, size, floats, text, size]
    library.lanyard_score_lines_as.argtypes = [
        place, ctypes.POINTER(text), size, text, size, floats, size, ctypes.POINTER(size), _Told,
        place, text, size]
    library.lanyard_score_numbers.argtypes = [place, size, ctypes.POINTER(ctypes.c_double),
                                              ctypes.POINTER(ctypes.c_uint64), place, floats, text,
                                              size]
    return library


_library = None


def _lib():
    global _library
    if _library is None:
        _library = _open()
    return _library


def _pointer(array, kind):
    return array.ctypes.data_as(ctypes.POINTER(kind))


def __getattr__(name):
    """What trains is loaded when it is asked for: scikit-learn takes a second to import."""
    if name == "Classifier":
        from .classifier import Classifier
        return Classifier
    if name == "TrainingError":
        from .training import TrainingError
        return TrainingError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Column(str):
    """The name of a column. kind: "dense", "categorical", "multi"; "ignore" or "time" where others are made of it
    alone. separator: between the values of a cell, "" where it has one value."""

    def __new__(cls, name, kind, separator):
        self = super().__new__(cls, name)
        self.kind, self.separator = kind, separator
        return self

    def __getnewargs__(self):
        return str(self), self.kind, self.separator


def _log_loss(found, labels):
    """Of probabilities, samples or samples x labels or classes; labels: 0 and 1 (NaN: there is none), or classes."""
    labels = np.asarray(labels)
    if found.ndim == 2 and labels.ndim == 1:
        return float(-np.log(np.maximum(found[np.arange(len(found)), labels.astype(int)], 1e-15)).mean())
    if found.shape != labels.shape:
        raise ValueError(f"expected labels of shape {found.shape}, found {labels.shape}")
    labels, found = labels.astype(np.float64), np.clip(found.astype(np.float64), 1e-15, 1 - 1e-15)
    return float(-np.nanmean(labels * np.log(found) + (1 - labels) * np.log(1 - found)))


class Model:
    """A finished model: the folder model/ of a run, a checkpoint, or what `lanyard export` made."""

    def __init__(self, path):
        self.path = os.fspath(path)
        self._model, self._weights = ctypes.c_void_p(), None
        self._call(_lib().lanyard_load, os.fsencode(path), ctypes.byref(self._model))
        self.columns = []
        while (name := _lib().lanyard_column_name(self._model, len(self.columns))) is not None:
            kind = _lib().lanyard_column_kind(self._model, len(self.columns))
            separator = chr(_lib().lanyard_column_separator(self._model, len(self.columns)))
            self.columns.append(Column(name.decode(), kind.decode(), separator.strip("\0")))
        self._separators = {name: name.separator for name in self.columns}
        self.format = _lib().lanyard_format(self._model).decode()
        iteration, samples, trained_s = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_double()
        _lib().lanyard_version(self._model, ctypes.byref(iteration), ctypes.byref(samples),
                               ctypes.byref(trained_s))
        self.iteration, self.samples = iteration.value, samples.value
        self.trained_s = trained_s.value  # when the last of them were, in seconds since 1970
        self.dense_count = _lib().lanyard_dense_count(self._model)
        self.field_count = _lib().lanyard_field_count(self._model)
        self.labels = [_lib().lanyard_label_name(self._model, label).decode()
                       for label in range(_lib().lanyard_label_count(self._model))]

    def __del__(self):
        if getattr(self, "_model", None):
            _lib().lanyard_free(self._model)

    @property
    def age_s(self):
        """Since the last samples were trained."""
        return time.time() - self.trained_s

    @property
    def weights(self):
        """Its files as numpy arrays (lanyard.read): keys, values and state of the rows, dense, scale, config."""
        if self._weights is None:
            weights = read(self.path)
            if weights.meta.get("iteration", self.iteration) != self.iteration:
                raise ModelError(f"{self.path}: holds iteration {weights.meta['iteration']} by now, this model is of "
                                 f"{self.iteration}")
            self._weights = weights
        return self._weights

    def importance(self, columns, labels, repeats=3, samples=2000, seed=0):
        """Column -> by how much log loss rises where the values of this column are dealt out anew among the samples,
        the mean of `repeats`; the largest first. Taken of so many samples, chosen at random. columns: as of predict();
        labels: 0 and 1, or the number of the class, or samples x labels."""
        rng, labels = np.random.default_rng(seed), np.asarray(labels)
        arrays = {name: array_of(values) for name, values in columns_of(columns)}
        chosen = rng.permutation(len(labels))[:samples]
        arrays, labels = {name: values[chosen] for name, values in arrays.items()}, labels[chosen]
        base = _log_loss(self.predict(arrays), labels)
        rises = {name: np.mean([_log_loss(self.predict({**arrays, name: rng.permutation(values)}), labels) - base
                                for _ in range(repeats)]) for name, values in arrays.items()}
        return {name: float(rises[name]) for name in sorted(rises, key=rises.get, reverse=True)}

    def to_onnx(self, path=None):
        """The model as an ONNX graph (onnx.ModelProto), written to `path` if that is given. Inputs are those of
        onnx_inputs(), the output "probabilities" is predict()'s but for rounding. Needs the package onnx."""
        from .onnx_graph import to_onnx
        graph = to_onnx(self.weights, self.dense_count)
        if path is not None:
            with open(path, "wb") as file:
                file.write(graph.SerializeToString())
        return graph

    def onnx_inputs(self, columns):
        """What the graph of to_onnx() takes for samples, as predict() takes them: "keys", samples x places, int64
        (-1: no key), and "dense", samples x dense features, float64, where the model has any."""
        from .onnx_graph import padded
        is_json, given = self.format == "json", columns_of(columns)
        cells = {name: texts_of(name, values, self._separators.get(name), is_json) for name, values in given}
        unknown = [name for name in cells if name not in self.columns]
        if unknown or not cells:
            raise ValueError(f"{unknown[0]}: no such column" if unknown else "columns are expected, found none")
        dense, keys = self.weights.features(cells)
        return {"keys": padded(self.weights.config, keys), **({"dense": dense} if self.dense_count else {})}

    @staticmethod
    def _call(function, *arguments):
        """What there is to say when all went well: of samples that gave NaN."""
        error = ctypes.create_string_buffer(512)
        failed = function(*arguments, error, len(error))
        text = error.value.decode(errors="replace")
        if failed:
            raise ModelError(text)
        return text

    def _room(self, count):
        """For so many samples: one dimension, or, of a model of several labels or classes, samples x so many."""
        return np.empty((count, len(self.labels)) if len(self.labels) > 1 else count, np.float32)

    def predict(self, columns):
        """Probabilities of label 1, float32; of a model of several labels or classes samples x so many, here and
        below. columns: name -> values (an array, a list, a column of pandas, Polars or Arrow), all of one length; or a
        frame, or a list of dicts. Values are numbers, str, bytes, times, or lists of them for a column of several values. One that is not
        named is missing in all samples; None, NaN, NaT, pandas.NA, what is masked and "" are missing, too."""
        is_json = self.format == "json"
        arrays = {name: values_of(name, values, is_json, self._separators.get(name))
                  for name, values in columns_of(columns)}
        counts = {len(array) for _, array in arrays.values()}
        if len(counts) != 1:
            raise ValueError(f"columns of one length are expected, found {sorted(counts)}")
        count = counts.pop()
        given = (_Column * len(arrays))(*[
            _Column(name.encode(), kind, array.itemsize, array.ctypes.data)
            for name, (kind, array) in arrays.items()])
        out = self._room(count)
        told = self._call(_lib().lanyard_score, self._model, given, len(arrays), count,
                          _pointer(out, ctypes.c_float))
        if told:
            warnings.warn(told, stacklevel=2)
        return out

    def predict_lines(self, lines, columns=None, problems=None):
        """The same of lines of the model's own format (bytes, str, or a list of lines). Cells stand in the order of
        stream.table.columns, or as a header says that is the first line, or as `columns` does, a list of names; labels
        may be left out. A line that is no sample gives NaN: problems, a dict, is filled with row -> reason; without
        one it is a warning."""
        if not isinstance(lines, (str, bytes, bytearray, memoryview)):
            lines = list(lines)
            end = b"\n" if lines and isinstance(lines[0], bytes) else "\n"
            lines = end[:0].join(line.rstrip(b"\r\n" if isinstance(line, bytes) else "\r\n") + end
                                 for line in lines)
        data = lines.encode() if isinstance(lines, str) else bytes(lines)
        names = [name.encode() for name in columns or ()]
        out = self._room(data.count(b"\n") + 1)
        count = ctypes.c_size_t()
        reasons = {}
        note = _Told(lambda _, row, reason: reasons.update({row: reason.decode(errors="replace")}))
        told = self._call(_lib().lanyard_score_lines_as, self._model,
                          (ctypes.c_char_p * len(names))(*names) if names else None, len(names), data,
                          len(data), _pointer(out, ctypes.c_float), len(out), ctypes.byref(count), note, None)
        if problems is not None:
            problems.update(reasons)
        elif told:
            warnings.warn(told, stacklevel=2)
        return out[:count.value]

    def predict_keys(self, dense, keys):
        """The same of numbers: samples x dense features as they were read, after `transform`, and
        samples x fields, field << 56 | id."""
        keys = np.ascontiguousarray(keys, np.uint64)
        dense = np.ascontiguousarray(dense, np.float64)
        if keys.ndim != 2 or keys.shape[1] != self.field_count or \
                dense.size != len(keys) * self.dense_count:
            raise ValueError(f"expected samples x {self.field_count} keys and samples x "
                             f"{self.dense_count} dense features")
        out = self._room(len(keys))
        told = self._call(_lib().lanyard_score_numbers, self._model, len(keys), _pointer(dense, ctypes.c_double),
                          _pointer(keys, ctypes.c_uint64), None, _pointer(out, ctypes.c_float))
        if told:
            warnings.warn(told, stacklevel=2)
        return out
