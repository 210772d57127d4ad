"""Predictions of models that Lanyard trained.

    import lanyard
    model = lanyard.Model("run1/model")
    model.columns                              # names, in order
    model.labels                               # likewise, of what it predicts
    model.predict({"I1": [1, 5], "C1": ["68fd1e64", ""]})    # float32, probabilities of label 1
    weights = lanyard.read("run1/model")       # rows, dense part and scale as numpy arrays

predict() goes through liblanyard (lanyard.h), the program's own code; it is looked for where
LANYARD_LIBRARY says, beside this file, where the system looks for libraries, and in
/usr/local/lib. Any number of threads may predict with one model; the library runs without Python's
lock. read() is tools/read_model.py and needs no library.
"""

import ctypes
import ctypes.util
import os

import numpy as np

from .weights import ModelError, read_model as read

__all__ = ["Model", "ModelError", "read"]

ABI = 1
_TEXT, _INT64, _DOUBLE, _BOOL = range(4)


class _Column(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_int), ("stride", ctypes.c_size_t),
                ("values", ctypes.c_void_p)]


def _candidates():
    if os.environ.get("LANYARD_LIBRARY"):
        return [os.environ["LANYARD_LIBRARY"]]
    name = f"liblanyard.so.{ABI}"
    here = os.path.dirname(os.path.abspath(__file__))
    return [os.path.join(here, name), name, f"/usr/local/lib/{name}"]


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
    for count in (library.lanyard_dense_count, library.lanyard_field_count):
        count.argtypes, count.restype = [place], size
    library.lanyard_label_count.argtypes, library.lanyard_label_count.restype = [place], size
    library.lanyard_label_name.argtypes = [place, size]
    library.lanyard_label_name.restype = text
    library.lanyard_score.argtypes = [place, ctypes.POINTER(_Column), size, size, floats, text, size]
    library.lanyard_score_lines.argtypes = [place, text, size, floats, size, ctypes.POINTER(size),
                                            text, size]
    library.lanyard_score_keys.argtypes = [place, size, floats, ctypes.POINTER(ctypes.c_uint64),
                                           place, floats, text, size]
    return library


_library = None


def _lib():
    global _library
    if _library is None:
        _library = _open()
    return _library


def _pointer(array, kind):
    return array.ctypes.data_as(ctypes.POINTER(kind))


def _values_of(name, values):
    """(type, array) as the library reads them."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"column {name}: expected one dimension, found {array.ndim}")
    if array.dtype.kind == "b":
        return _BOOL, np.ascontiguousarray(array)
    if array.dtype.kind in "iu" and array.dtype != np.uint64:
        return _INT64, np.ascontiguousarray(array, np.int64)
    if array.dtype.kind == "f":
        return _DOUBLE, np.ascontiguousarray(array, np.float64)
    if array.dtype.kind == "O":
        array = np.array(["" if v is None else v if isinstance(v, (str, bytes)) else str(v)
                          for v in array])
    if array.dtype.kind not in "US":
        array = array.astype("U")
    if array.dtype.kind == "U":
        array = np.char.encode(array, "utf-8") if len(array) else array.astype("S1")
    return _TEXT, np.ascontiguousarray(array)


class Model:
    """A finished model: the folder model/ of a run, a checkpoint, or what `lanyard export` made."""

    def __init__(self, path):
        self._model = ctypes.c_void_p()
        self._call(_lib().lanyard_load, os.fsencode(path), ctypes.byref(self._model))
        self.columns = []
        while (name := _lib().lanyard_column_name(self._model, len(self.columns))) is not None:
            self.columns.append(name.decode())
        self.dense_count = _lib().lanyard_dense_count(self._model)
        self.field_count = _lib().lanyard_field_count(self._model)
        self.labels = [_lib().lanyard_label_name(self._model, label).decode()
                       for label in range(_lib().lanyard_label_count(self._model))]

    def __del__(self):
        if getattr(self, "_model", None):
            _lib().lanyard_free(self._model)

    @staticmethod
    def _call(function, *arguments):
        error = ctypes.create_string_buffer(512)
        if function(*arguments, error, len(error)):
            raise ModelError(error.value.decode(errors="replace"))

    def _room(self, count):
        """For so many samples: one dimension, or, of a model of several labels or classes, samples x so many."""
        return np.empty((count, len(self.labels)) if len(self.labels) > 1 else count, np.float32)

    def predict(self, columns):
        """Probabilities of label 1, float32; of a model of several labels or classes samples x so many, here and
        below. columns: name -> array (numbers, str or bytes), all of
        one length; one that is not named is missing in all samples, and so are NaN and ""."""
        arrays = {name: _values_of(name, values) for name, values in columns.items()}
        counts = {len(array) for _, array in arrays.values()}
        if len(counts) != 1:
            raise ValueError(f"columns of one length are expected, found {sorted(counts)}")
        count = counts.pop()
        given = (_Column * len(arrays))(*[
            _Column(name.encode(), kind, array.itemsize, array.ctypes.data)
            for name, (kind, array) in arrays.items()])
        out = self._room(count)
        self._call(_lib().lanyard_score, self._model, given, len(arrays), count,
                   _pointer(out, ctypes.c_float))
        return out

    def predict_lines(self, lines):
        """The same of lines of the model's own format (bytes, or str); one that is none gives NaN."""
        data = lines.encode() if isinstance(lines, str) else bytes(lines)
        out = self._room(data.count(b"\n") + 1)
        count = ctypes.c_size_t()
        self._call(_lib().lanyard_score_lines, self._model, data, len(data),
                   _pointer(out, ctypes.c_float), len(out), ctypes.byref(count))
        return out[:count.value]

    def predict_keys(self, dense, keys):
        """The same of numbers: samples x dense features as they were read, after `transform`, and
        samples x fields, field << 56 | id."""
        keys = np.ascontiguousarray(keys, np.uint64)
        dense = np.ascontiguousarray(dense, np.float32)
        if keys.ndim != 2 or keys.shape[1] != self.field_count or \
                dense.size != len(keys) * self.dense_count:
            raise ValueError(f"expected samples x {self.field_count} keys and samples x "
                             f"{self.dense_count} dense features")
        out = self._room(len(keys))
        self._call(_lib().lanyard_score_keys, self._model, len(keys), _pointer(dense, ctypes.c_float),
                   _pointer(keys, ctypes.c_uint64), None, _pointer(out, ctypes.c_float))
        return out
