"""Cells: what a value of any container is in a line of samples. What is missing is the empty text."""

from collections.abc import Mapping

import numpy as np

from .weights import is_missing

TEXT, INT64, DOUBLE, BOOL = range(4)  # lanyard_type of lanyard.h
WHOLE_MAX = 2.0 ** 53


def array_of(values):
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
    """As the library writes a number of LANYARDDOUBLE."""
    if abs(number) < WHOLE_MAX and number == int(number):
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


def values_of(name, values, is_json, separator):
    """(type, array) as the library reads them."""
    try:
        array = array_of(values)
        if array.ndim == 2 and array.dtype.kind != "O" and separator:
            array = array_of(list(array))
        if array.ndim != 1:
            raise ValueError(f"expected one dimension, found {array.ndim}")
        if array.dtype.kind == "O":
            array = _of_objects(array, is_json, separator)
    except ValueError as error:
        raise ValueError(f"column {name}: {error}") from None
    if array.dtype.kind == "b":
        return BOOL, np.ascontiguousarray(array)
    if array.dtype.kind in "iu" and array.dtype != np.uint64:
        return INT64, np.ascontiguousarray(array, np.int64)
    if array.dtype.kind == "f":
        if array.dtype.itemsize < 8:
            array = array.astype("U")  # of the digits that say it: 0.1, not 0.10000000149
        return DOUBLE, np.ascontiguousarray(array, np.float64)
    if array.dtype.kind == "M":
        array = _texts_of_times(array)
    if array.dtype.kind not in "US":
        array = array.astype("U")
    if array.dtype.kind == "U":
        array = np.char.encode(array, "utf-8") if len(array) else array.astype("S1")
    return TEXT, np.ascontiguousarray(array)


def is_records(data):
    return isinstance(data, (list, tuple)) and bool(data) and all(isinstance(row, Mapping) for row in data)


def _flat(row, before=""):
    """Objects in an object: "user.id" of {"user": {"id": 7}}, as paths of columns are."""
    flat = {}
    for name, value in row.items():
        path = f"{before}{name}" if before else name
        flat.update(_flat(value, f"{path}.") if isinstance(value, Mapping) else {path: value})
    return flat


def columns_of(columns):
    """(name, values) of a dict, a list of dicts, an array with named fields, a frame of pandas or Polars, a table of
    Arrow. A key that a dict of a list lacks is missing there."""
    if is_records(columns):
        columns = [_flat(row) for row in columns]
        return [(name, [row.get(name) for row in columns]) for name in dict.fromkeys(n for row in columns for n in row)]
    fields = getattr(getattr(columns, "dtype", None), "names", None)
    if fields:
        return [(name, columns[name]) for name in fields]
    if hasattr(columns, "items"):
        return columns.items()
    names = getattr(columns, "column_names", None) or columns.columns
    return [(name, columns[name]) for name in names]


def texts_of(name, values, separator="|", is_json=False):
    """The cells of a column, a list of str: as values_of, and as the library writes its numbers. is_json: as a model
    of that format reads them."""
    kind, array = values_of(name, values, is_json, separator)
    if kind == TEXT:
        return [cell.decode() for cell in array.tolist()]
    if kind == DOUBLE:
        return ["" if number != number else _text_of_float(number, is_json) for number in array.tolist()]
    if kind == BOOL and is_json:
        return ["true" if value else "false" for value in array.tolist()]
    return [str(int(number)) for number in array.tolist()]
