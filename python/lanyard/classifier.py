"""lanyard.Classifier: training in the conventions of scikit-learn, which need not be installed."""

import copy
import inspect
import io
import numbers
import shutil
import tarfile
import warnings
from collections.abc import Mapping

import numpy as np

from . import Model
from . import training
from .cells import array_of, columns_of, is_records, texts_of
from .weights import ModelError, sources_of

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import DataConversionWarning, NotFittedError
except ImportError:
    class NotFittedError(ValueError, AttributeError):
        """fit() or partial_fit() comes first."""

    DataConversionWarning = UserWarning

    class ClassifierMixin:
        def score(self, X, y, sample_weight=None):
            """The share of the samples whose class is predicted."""
            return float(np.average(self.predict(X) == np.asarray(y), weights=sample_weight))

    class BaseEstimator:
        def get_params(self, deep=True):
            return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

        def set_params(self, **params):
            for name, value in params.items():
                if name not in self.get_params():
                    raise ValueError(f"Invalid parameter {name!r} for estimator {type(self).__name__}")
                setattr(self, name, value)
            return self

KINDS = ("dense", "categorical", "multi", "ignore")
METRICS_BYTES = 1000000  # that a run may leave in its folder
VALUES_MAX = 1024  # of a cell of several values


# ---- samples

class _Samples:
    """Columns by name, of any container. names: None of a matrix, whose columns have none."""

    def __init__(self, data):
        if hasattr(data, "tocsr"):
            raise TypeError("Sparse data was passed, but dense data is required: X.toarray()")
        self.is_frame = not isinstance(data, Mapping) and (hasattr(data, "columns") or hasattr(data, "column_names"))
        has_fields = bool(getattr(getattr(data, "dtype", None), "names", None))
        if self.is_frame or isinstance(data, Mapping) or is_records(data) or has_fields:
            self._of_names(data)
        else:
            self._of_matrix(np.asarray(data))
        self.count = self.shape[0]
        if not self.shape[1]:
            raise ValueError(f"Found array with 0 feature(s) (shape={self.shape}) while a minimum of 1 is required.")
        if not self.count:
            raise ValueError(f"Found array with 0 sample(s) (shape={self.shape}) while a minimum of 1 is required.")
        for array in self.columns.values():
            if array.dtype.kind == "c":
                raise ValueError("Complex data not supported")
            if array.dtype.kind == "f" and np.isinf(array).any():
                raise ValueError(f"Input X contains infinity or a value too large for {array.dtype!r}.")

    def _of_names(self, data):
        pairs = list(columns_of(data))
        self.has_names = all(isinstance(name, str) for name, _ in pairs)
        if self.is_frame and not self.has_names and any(isinstance(name, str) for name, _ in pairs):
            raise TypeError("Feature names are only supported if all input features have string names, but your input "
                            "has names of several types")
        if self.is_frame and not self.has_names:  # numbers that say no more than the place
            pairs = [(f"x{i}", values) for i, (_, values) in enumerate(pairs)]
        self.columns = {}
        for name, values in pairs:
            try:
                self.columns[str(name)] = array_of(values)
            except ValueError as error:
                raise ValueError(f"column {name}: {error}") from None
        if len(self.columns) < len(pairs):
            raise ValueError("two columns have the same name")
        counts = sorted(set(map(len, self.columns.values())))
        if len(counts) > 1:
            raise ValueError(f"columns of one length are expected, found {counts}")
        self.shape = (counts[0] if counts else 0, len(self.columns))

    def _of_matrix(self, array):
        if array.ndim != 2:
            raise ValueError(
                f"Expected 2D array, got {'scalar' if not array.ndim else f'{array.ndim}D'} array instead. Reshape "
                "your data either using array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if "
                "it contains a single sample.")
        if array.dtype.kind in "OU":
            try:
                array = array.astype(np.float64)
            except ValueError:
                pass  # texts
        self.has_names, self.shape = False, array.shape
        self.columns = {f"x{i}": array[:, i] for i in range(array.shape[1])}

    def named(self, names):
        """The same, where columns are known by their places alone."""
        self.columns = dict(zip(names, self.columns.values()))
        return self


def _is_dense(array):
    """Numbers with decimals are quantities; whether whole ones are is guessed."""
    return array.dtype.kind == "f" and bool((array != np.floor(array))[~np.isnan(array)].any())


def _longest_list(array):
    """Of a column whose values are lists; 0: they are not."""
    if array.ndim > 1:
        return array.shape[1]
    lists = [len(one) for one in array.tolist() if isinstance(one, (list, tuple, set, frozenset, np.ndarray))] \
        if array.dtype.kind == "O" else []
    return max(lists, default=0) or int(bool(lists))


class Classifier(ClassifierMixin, BaseEstimator):
    """A click-through model with the fit, partial_fit and predict_proba of scikit-learn.

    X: a frame of pandas or Polars, a table of Arrow, a dict of columns, a list of dicts, or a matrix. The columns of a
    matrix of numbers are dense. Of others numbers with decimals are dense, lists are multi, and `lanyard init` guesses
    the rest (docs/FORMATS.md).

    kinds: name -> "dense", "categorical", "multi" or "ignore", or a dict as in stream.table.columns, for columns that
    are known better. A column of a matrix is called x0, x1, ...
    epochs: how often fit() goes over the samples; partial_fit() does once.
    shuffle: whether samples are trained in random order, another one in every epoch, or as they stand.
    config: keys of the configuration, {"model.name": "dcn", "optimizer.rows.learning_rate": 0.05} (docs/CONFIG.md).
    random_state: a number, a RandomState, or None: another seed each time.
    verbose: whether the log of training goes to standard error.
    """

    def __init__(self, kinds=None, epochs=1, shuffle=True, config=None, random_state=1, verbose=False):
        self.kinds = kinds
        self.epochs = epochs
        self.shuffle = shuffle
        self.config = config
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_model")

    # ---- what is learnt

    def fit(self, X, y, sample_weight=None):
        """Learns anew. Returns self."""
        return self._learn(X, y, None, sample_weight, self._epochs())

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Goes on: with the rows, weights and optimizer's state of the calls before. The first call needs classes, all
        that will ever come. Returns self."""
        if not hasattr(self, "_model") and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if hasattr(self, "_model") and classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(f"`classes={classes}` is not the same as on last call to partial_fit, was: "
                             f"{self.classes_}")
        return self._learn(X, y, np.unique(classes) if classes is not None else self.classes_, sample_weight, 1,
                           goes_on=hasattr(self, "_model"))

    def _learn(self, X, y, classes, sample_weight, epochs, goes_on=False):
        if y is None:
            raise ValueError("This Classifier estimator requires y to be passed, but the target y is None")
        samples = self._known(_Samples(X)) if goes_on else _Samples(X)
        given, y = classes, _labels(y, samples.count)
        found, codes = np.unique(y, return_inverse=True)
        classes = found if given is None else given
        if not np.isin(found, classes).all():
            raise ValueError(f"y has the classes {found[~np.isin(found, classes)]}, which classes lacks")
        if len(classes) < 2:
            raise ValueError(f"Classifier needs samples of at least 2 classes, but the data contains one class: "
                             f"{classes.tolist()}")
        codes = np.searchsorted(classes, found)[codes]
        weights = _weights(sample_weight, samples.count)
        if weights is not None and not weights.any():
            raise ValueError("sample_weight is zero for all samples")
        if weights is not None and given is None and len(set(codes[weights > 0])) < 2:
            raise ValueError("Classifier needs samples of at least 2 classes whose sample_weight is above zero")
        rng = self._rng()
        home = self._home if goes_on else training.Home()
        config = self._config if goes_on else self._configured(samples, codes, classes, weights is not None, rng)
        malformed = self._malformed if goes_on else 0
        lines, order = _lines(config, samples, codes, weights)
        chunks = self._chunks(lines, order, epochs, rng)
        summary = training.train(home.path, self._with_own(config), chunks, goes_on, self.verbose)
        if summary["malformed_lines"] > malformed:
            warnings.warn(f"{summary['malformed_lines'] - malformed} samples could not be read, and were left out; "
                          "verbose=True says why", stacklevel=3)
        self._take(home)
        self._config, self._malformed = config, summary["malformed_lines"]
        self.classes_ = classes
        if not goes_on:
            self._remember(samples)
        return self

    def _take(self, home):
        self._home, self._model = home, Model(f"{home.path}/out/model")
        self._model.home = home  # whoever has the model can read its files

    def _epochs(self):
        if not isinstance(self.epochs, numbers.Integral) or self.epochs < 1:
            raise ValueError(f"epochs is {self.epochs!r}, expected a number from 1 on")
        return self.epochs

    def _rng(self):
        state = self.random_state
        return np.random.RandomState(state) if state is None or isinstance(state, numbers.Integral) else state

    def _chunks(self, lines, order, epochs, rng):
        for _ in range(epochs):
            rows = rng.permutation(order) if self.shuffle else order
            for first in range(0, len(rows), training.CHUNK_ROWS):
                yield [lines[row] for row in rows[first:first + training.CHUNK_ROWS]]

    def _remember(self, samples):
        self.n_features_in_ = samples.shape[1]
        self._names = list(samples.columns)
        self.kinds_ = {one["name"]: one["kind"] for one in self._config["stream"]["table"]["columns"]
                       if one.get("name") in self._names}
        self.kinds_ = {name: self.kinds_.get(name, "ignore") for name in self._names}
        if samples.has_names:
            self.feature_names_in_ = np.array(self._names, object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    # ---- the configuration of a run

    def _configured(self, samples, codes, classes, has_weights, rng):
        label, weight = _free("label", samples.columns), _free("weight", samples.columns)
        is_binary = len(classes) == 2
        head = [{"name": label, "kind": "label", **({} if is_binary else {"classes": len(classes)})}]
        if has_weights and is_binary:
            head.append({"name": weight, "kind": "weight"})
        config = {"version": 1, "seed": int(rng.randint(1, 2 ** 31 - 1))}
        training.put(config, "stream.format", "table")
        training.put(config, "stream.table.columns", head + self._columns(samples, codes, label))
        training.put(config, "checkpoint.keep", 1)
        training.put(config, "timeouts.peer_s", 60)  # one machine, however busy
        training.put(config, "metrics.bytes_max", METRICS_BYTES)
        return config

    def _with_own(self, config):
        """With the user's keys, those of today: a learning rate may change between two calls."""
        config = copy.deepcopy(config)
        for path, value in (self.config or {}).items():
            training.put(config, path, value)
        training.put(config, "stream.files", "-")
        training.put(config, "checkpoint.at_end", True)
        return config

    def _columns(self, samples, codes, label):
        """A column of the configuration for every cell, and behind them those that are made of others."""
        said = {str(name): dict(kind) if isinstance(kind, Mapping) else {"kind": kind}
                for name, kind in (self.kinds or {}).items()}
        for name, column in said.items():
            if name not in samples.columns:
                raise ValueError(f"kinds names {name}, which is no column of X")
            if column.get("kind") not in KINDS + ("time",):
                raise ValueError(f"kinds: {name} is {column.get('kind')!r}, expected one of {', '.join(KINDS)}")
        numbers_alone = all(array.dtype.kind in "biuf" for array in samples.columns.values())
        is_matrix = not samples.has_names and numbers_alone
        for name, array in samples.columns.items():
            longest = _longest_list(array)
            if is_matrix or _is_dense(array):
                said.setdefault(name, {"kind": "dense"})
            elif longest:
                said.setdefault(name, {"kind": "multi", "values_max": min(max(8, longest), VALUES_MAX)})
        open_ones = [name for name in samples.columns if name not in said]
        cells = [texts_of(name, samples.columns[name]) for name in open_ones]
        guessed = training.guess([label] + open_ones, [list(map(str, (codes > 0).astype(int)))] + cells, label) \
            if open_ones else []
        own = {column["name"]: column for column in guessed if "name" in column and "from" not in column}
        own.update({name: {"name": name, **column} for name, column in said.items()})
        made = [column for column in guessed if "from" in column]
        cells = [own.get(name, {"name": name, "kind": "ignore"}) for name in samples.columns]
        dense = [column["name"] for column in cells if column["kind"] == "dense"]
        if dense and not any(column["kind"] in ("categorical", "multi") for column in cells + made):
            # Every model has a field of ids: here one with the same id in all samples, a bias.
            made = made + [{"name": _free("bias", samples.columns), "kind": "categorical", "from": dense[0],
                            "transform": "bucket", "edges": [1e300]}]
        return cells + made

    # ---- what is asked

    def predict_proba(self, X):
        """samples x classes."""
        samples = self._asked(X)
        try:
            found = self._model.predict(self._wanted(samples)).astype(np.float64)
        except ModelError as error:
            raise ValueError(str(error)) from None
        return np.column_stack([1 - found, found]) if found.ndim == 1 else found / found.sum(1, keepdims=True)

    def predict(self, X):
        """The likeliest class of each."""
        self._check()
        return self.classes_[self.predict_proba(X).argmax(1)]

    def importance(self, X, y, **options):
        """As Model.importance: how much worse predictions are where one column's values are dealt out anew."""
        samples = self._asked(X)
        codes = np.searchsorted(self.classes_, _labels(y, samples.count))
        return self._model.importance(self._wanted(samples), codes, **options)

    @property
    def model_(self):
        """The lanyard.Model that answers."""
        self._check()
        return self._model

    def save(self, folder):
        """Copies the model there, for `lanyard serve`, `lanyard predict` and lanyard.Model."""
        self._check()
        shutil.copytree(f"{self._home.path}/out/model", folder)

    def _check(self):
        if not hasattr(self, "_model"):
            raise NotFittedError("This Classifier instance is not fitted yet. Call 'fit' with appropriate arguments "
                                 "before using this estimator.")

    def _asked(self, X):
        self._check()
        return self._known(_Samples(X))

    def _wanted(self, samples):
        """A model refuses columns that it does not have: here those are ones that were left out."""
        wanted = {name: samples.columns[name] for name in self._model.columns if name in samples.columns}
        return wanted or {self._model.columns[0]: [None] * samples.count}

    def _known(self, samples):
        """Columns that were not there before are refused; in dicts some may be missing."""
        names = getattr(self, "feature_names_in_", None)
        if samples.has_names and names is None:
            warnings.warn("X has feature names, but Classifier was fitted without feature names", stacklevel=4)
        if samples.has_names and names is not None:
            return self._matching(samples, list(names))
        if names is not None:
            warnings.warn("X does not have valid feature names, but Classifier was fitted with feature names",
                          stacklevel=4)
        if samples.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {samples.shape[1]} features, but Classifier is expecting {self.n_features_in_} "
                             "features as input.")
        return samples.named(self._names)

    @staticmethod
    def _matching(samples, names):
        found = list(samples.columns)
        unseen = [name for name in found if name not in names]
        missing = [name for name in names if name not in found] if samples.is_frame else []
        text = "The feature names should match those that were passed during fit.\n"
        if unseen:
            text += "Feature names unseen at fit time:\n" + "".join(f"- {name}\n" for name in sorted(unseen)[:5])
        if missing:
            text += "Feature names seen at fit time, yet now missing:\n"
            text += "".join(f"- {name}\n" for name in sorted(missing)[:5])
        if unseen or missing:
            raise ValueError(text)
        if samples.is_frame and found != names:
            raise ValueError(text + "Feature names must be in the same order as they were in fit.\n")
        return samples

    # ---- copies, and what goes through pickle: with the files of the run

    def __getstate__(self):
        state = {name: value for name, value in self.__dict__.items() if name not in ("_home", "_model")}
        if hasattr(self, "_model"):
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
                tar.add(f"{self._home.path}/out", "out")
            state["_files"] = packed.getvalue()
        return state

    def __setstate__(self, state):
        state = dict(state)
        packed = state.pop("_files", None)
        self.__dict__.update(state)
        if packed is not None:
            home = training.Home()
            with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
                tar.extractall(home.path)
            self._take(home)

    def __deepcopy__(self, memo):
        other = type(self).__new__(type(self))
        other.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return other


def _free(name, names):
    """The name, with as many underscores behind it as it takes that no column is called so."""
    return _free(name + "_", names) if name in names else name


def _labels(y, count):
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        warnings.warn("A column-vector y was passed when a 1d array was expected. Please change the shape of y to "
                      "(n_samples, ), for example using ravel().", DataConversionWarning, stacklevel=4)
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"y should be a 1d array, got an array of shape {y.shape} instead.")
    if len(y) != count:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: [{count}, {len(y)}]")
    if y.dtype.kind == "c":
        raise ValueError("Complex data not supported")
    if y.dtype.kind == "f":
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity.")
        if (y != np.floor(y)).any():
            raise ValueError("Unknown label type: continuous. A classifier expects classes.")
    if y.dtype.kind == "O" and any(one is None or one != one for one in y):
        raise ValueError("Input y contains NaN.")
    return y


def _weights(weights, count):
    if weights is None:
        return None
    weights = np.asarray(weights, np.float64)
    if weights.ndim == 0:
        weights = np.full(count, float(weights))
    if weights.ndim != 1:
        raise ValueError("Sample weights must be 1D array or scalar")
    if len(weights) != count:
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(count,)}!")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("sample_weight holds a value that is negative or no number")
    return weights


def _lines(config, samples, codes, weights):
    """Lines of samples, and the rows that an epoch goes over: of weights that no column has, each as often."""
    columns = config["stream"]["table"]["columns"]
    cells, order = [list(map(str, codes.tolist()))], np.arange(samples.count)
    if columns[1]["kind"] == "weight":
        cells.append([repr(one) for one in weights.tolist()] if weights is not None else [""] * samples.count)
    elif weights is not None:
        if (weights != np.floor(weights)).any():
            raise ValueError("sample_weight has to be whole numbers where there are more than two classes, or where "
                             "the first call had none")
        order = np.repeat(order, weights.astype(int))
    sources = {name for column in columns for name in sources_of(column)}
    for column in columns[len(cells):]:
        name = column["name"]
        if name in samples.columns and (column["kind"] != "ignore" or name in sources):
            cells.append(texts_of(name, samples.columns[name], column.get("separator", "|")))
        elif "from" not in column:
            cells.append([""] * samples.count)
    return training.lines_of(cells), order
