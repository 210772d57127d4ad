"""Predictions of models that Lanyard trained.

    import lanyard
    model = lanyard.Model("run1/model")
    model.columns                              # names, in order
    model.labels                               # likewise, of what it predicts
    model.iteration, model.samples, model.age_s   # which version it is, as `lanyard serve` says it
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
import time
import warnings

import numpy as np

from .weights import ModelError, is_missing, read_model as read

__all__ = ["Model", "ModelError", "read"]

ABI = 1
_TEXT, _INT64, _DOUBLE, _BOOL = range(4)


class _Column(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_int), ("stride", ctypes.c_size_t),
                ("values", ctypes.c_void_p)]


_Told = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


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


# ---- cells: what is missing is the empty text, whatever a container says for it

WHOLE_MAX = 2.0 ** 53


def _array_of(values):
    """An array of numpy: of objects, where that says more (which are whole, which are missing)."""
    if isinstance(values, np.ma.MaskedArray):
        return np.array([None if hidden else one for one, hidden in
                         zip(values.data, np.ma.getmaskarray(values))], object)
    nulls = getattr(values, "null_count", 0)  # of Arrow a number, of Polars a function
    if (nulls() if callable(nulls) else nulls) > 0:
        values = values.to_pylist() if hasattr(values, "to_pylist") else values.to_list()
    if isinstance(values, (str, bytes)):
        raise ValueError("a text is no column of cells")
    if hasattr(values, "__array__") or hasattr(values, "dtype"):
        array = np.asarray(values)
        if array.dtype.kind == "T":
            return array.astype(object)
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    array = np.empty(len(values), object)
    array[:] = values if isinstance(values, list) else list(values)
    return array


def _is_list(value):
    return isinstance(value, (list, tuple, set, frozenset)) or getattr(value, "ndim", 0) == 1


def _text_of_float(number, is_json):
    """As the library writes a number of LANYARD_DOUBLE."""
    if number == np.floor(number) and abs(number) < WHOLE_MAX:
        return str(int(number))
    if is_json and (abs(number) < WHOLE_MAX or abs(number) >= 1e22):
        return f"{number:.17g}"
    return next((text for text in (f"{number:.{digits}g}" for digits in (15, 16))
                 if float(text) == number), f"{number:.17g}")


def _text_of(value, is_json, separator=None):
    """The cell of a value, as it would stand in a line. separator: of a column of several values."""
    if _is_list(value):
        if not separator:
            raise ValueError("expected one value, found several")
        texts = [_text_of(one, is_json) for one in value]
        if any(separator in one for one in texts):
            raise ValueError(f"a value holds what divides values, {separator!r}")
        return separator.join(one for one in texts if one)
    if is_missing(value):
        return ""
    if isinstance(value, (bool, np.bool_)):
        return ("true" if value else "false") if is_json else str(int(value))
    if isinstance(value, np.floating):
        value = float(str(value))  # of the digits that say it: 0.1, not 0.10000000149
    if isinstance(value, float):
        return _text_of_float(value, is_json)
    if isinstance(value, np.datetime64):
        return str(value).replace("T", " ")
    return value.decode() if isinstance(value, bytes) else str(value)


def _texts_of_times(array):
    """Seconds where all are whole ones, as str() of a time has them."""
    whole = array.astype("datetime64[s]") if array.dtype != np.dtype("datetime64[D]") else array
    shown = whole if np.array_equal(whole[~np.isnat(array)], array[~np.isnat(array)]) else array
    texts = np.char.replace(np.datetime_as_string(shown), "T", " ")
    return np.where(np.isnat(array), "", texts)


def _of_objects(array, is_json, separator):
    """Numbers where all are, so that they are written as those of other arrays are; else texts."""
    kinds = set(map(type, array.tolist()))
    if kinds <= {int} and array.size and max(map(abs, array)) < 2 ** 63:
        return array.astype(np.int64)
    if kinds == {bool} or kinds == {float}:
        return array.astype(kinds.pop())
    return np.array([_text_of(one, is_json, separator) for one in array], "U")


def _values_of(name, values, is_json, separator):
    """(type, array) as the library reads them."""
    try:
        array = _array_of(values)
        if array.ndim == 2 and array.dtype.kind != "O" and separator:
            array = _array_of(list(array))
        if array.ndim != 1:
            raise ValueError(f"expected one dimension, found {array.ndim}")
        if array.dtype.kind == "O":
            array = _of_objects(array, is_json, separator)
    except ValueError as error:
        raise ValueError(f"column {name}: {error}") from None
    if array.dtype.kind == "b":
        return _BOOL, np.ascontiguousarray(array)
    if array.dtype.kind in "iu" and array.dtype != np.uint64:
        return _INT64, np.ascontiguousarray(array, np.int64)
    if array.dtype.kind == "f":
        if array.dtype.itemsize < 8:
            array = array.astype("U")  # of the digits that say it: 0.1, not 0.10000000149
        return _DOUBLE, np.ascontiguousarray(array, np.float64)
    if array.dtype.kind == "M":
        array = _texts_of_times(array)
    if array.dtype.kind not in "US":
        array = array.astype("U")
    if array.dtype.kind == "U":
        array = np.char.encode(array, "utf-8") if len(array) else array.astype("S1")
    return _TEXT, np.ascontiguousarray(array)


def _columns_of(columns):
    """(name, values) of a dict, a frame of pandas or Polars, a table of Arrow."""
    if hasattr(columns, "items"):
        return columns.items()
    names = getattr(columns, "column_names", None) or columns.columns
    return [(name, columns[name]) for name in names]


class Model:
    """A finished model: the folder model/ of a run, a checkpoint, or what `lanyard export` made."""

    def __init__(self, path):
        self._model = ctypes.c_void_p()
        self._call(_lib().lanyard_load, os.fsencode(path), ctypes.byref(self._model))
        self.columns = []
        while (name := _lib().lanyard_column_name(self._model, len(self.columns))) is not None:
            self.columns.append(name.decode())
        self._separators = {name: chr(_lib().lanyard_column_separator(self._model, i)).strip("\0")
                            for i, name in enumerate(self.columns)}
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
        frame. Values are numbers, str, bytes, times, or lists of them for a column of several values. One that is not
        named is missing in all samples; None, NaN, NaT, pandas.NA, what is masked and "" are missing, too."""
        is_json = self.format == "json"
        arrays = {name: _values_of(name, values, is_json, self._separators.get(name))
                  for name, values in _columns_of(columns)}
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
