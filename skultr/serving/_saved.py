"""Models on disk without pickle: one file with JSON, weights and the text of trees."""

from __future__ import annotations

import inspect
import json
import os
import zipfile
import zlib
from contextlib import suppress
from importlib import import_module, metadata
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import Booster, LGBMModel
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline

from .._base._optional import optional
from .._base._sklearn import validate_params
from .._base._writing import folder_beside, refuse_to_replace
from .._log._estimator import SlimPickles
from .._log._faults import IDS
from ..exceptions import warn_user
from ._boosters import check_settings, read_booster
from ._served_model import fitted_steps
from ._thresholds import BYTES_PER_VALUE, JSON_VALUES, UNPACKED_BYTES, UNPACKED_PER_BYTE

_FORMAT = "skultr model"
#: Version of how the file is laid out, which is read by versions of the same alone.
_LAYOUT = 1
_HEAD = "model.json"
#: Packages whose versions are compared when a file is read, and how much of them: None is all.
_PACKAGES = {"skultr": None, "numpy": 1, "scikit-learn": 1, "torch": 1, "lightgbm": 1}
#: NumPy parses the header of an array as Python, and Python 3.11 confuses the depths of parsers
#: that run in several threads ("AST constructor recursion depth mismatch").
_ONE_PARSER = Lock()


@validate_params({"path": [str, os.PathLike]}, prefer_skip_nested_validation=True)
def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Save a fitted model to a file without pickles, and without rows or ids of the log.

    Parameters
    ----------
    model : ranker of :mod:`skultr.rankers`, or Pipeline or search of one
        A fitted model. A search is saved as its ``best_estimator_``.
    path : str or path-like
        The file, a zip archive. A saved model that is there is replaced in one step. A file of
        another program is never replaced.

    Raises
    ------
    FileExistsError
        If another program wrote the file that is there.
    TypeError
        If the model is none of the above, or a part of it is code: a ``module`` of your own, a
        subclass, a function in a transformer, or a learner that is not of scikit-learn or
        LightGBM.
    ValueError
        If the model predicts by ids: ``relevance="embedding"``, or a repair whose bias factors
        are values of ``qid``, ``session``, ``doc`` or ``user``. Or if :func:`load_model` would
        refuse the file:

        - weights are not finite,
        - parameters or tables take more than a million values, or
        - the model unpacks to too much, such as a forest of scikit-learn with more than about
          4,000 trees of a few leaves.
    ImportError
        If safetensors or skops is missing: ``pip install "skultr[serving]"``.

    Warns
    -----
    UserWarning
        If parameters are code or come from the log: callbacks in ``net_params``, given or fitted
        propensities, a generator as ``random_state``. The loaded model has their defaults.

    Notes
    -----
    The archive holds

    - ``model.json``: parameters, tables, versions of packages;
    - ``weights.safetensors``: all arrays;
    - the text of each LightGBM booster;
    - a ``.skops`` file for each part of scikit-learn.

    It leaves out labels of documents, the graph and plans of a repair, and a teacher, which
    pickles leave out, too. It also leaves out fitted propensities, and what ``partial_fit`` of a
    network continues from.

    *Check before you give a file away.* Bias factors are kept: if a column ``bias`` held ids of
    users, they are in the file. Some models are made of rows of the log, such as the support
    vectors of an ``SVR``; these rows are in the file, too.

    Examples
    --------
    >>> import tempfile
    >>> from skultr import DLARanker
    >>> from skultr.datasets import make_ltr
    >>> from skultr.serving import load_model, save_model
    >>> from skultr.simulation import PlackettLucePolicy, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, _ = simulate_clicks(
    ...     documents, n_sessions=500, policy=PlackettLucePolicy(), random_state=0
    ... )
    >>> ranker = DLARanker(max_epochs=2, random_state=0).fit(log, clicks)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(ranker, f"{folder}/dla.zip")
    ...     loaded = load_model(f"{folder}/dla.zip")
    >>> bool((loaded.predict(documents) == ranker.predict(documents)).all())
    True
    """
    # Everything that may fail comes before the file is touched.
    fitted_steps(model)  # an error if it is no fitted ranker
    path = Path(path)
    encoder = Encoder()
    head = {
        "format": _FORMAT,
        "layout": _LAYOUT,
        "versions": _versions(),
        "model": encoder.encode(model),
        "scores_zeros": False,  # where zero is no category
    }
    with suppress(Exception):
        head["scores_zeros"] = _scores_zeros(model)
    parts = {_HEAD: json.dumps(head).encode(), **encoder.parts()}
    refuse_to_replace(path, _is_saved, "a model")
    with folder_beside(path) as folder:  # readers see the old or the new model
        new = folder / "model"
        with zipfile.ZipFile(new, "w") as file:
            for name, content in parts.items():
                # Without the time of day, so that equal models are equal files.
                file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
        _read(new)  # what cannot be loaded is found here
        # Once more: writing takes a while, in which another program may have come.
        refuse_to_replace(path, _is_saved, "a model")
        new.replace(path)
    if encoder.dropped:
        warn_user(
            f"Not saved: {', '.join(sorted(encoder.dropped))}. They are code, come from the log "
            "or are fitted, and predictions do not need them. The loaded model has their "
            "defaults; if you fit it again, it is trained with these.",
            UserWarning,
        )


@validate_params({"path": [str, os.PathLike]}, prefer_skip_nested_validation=True)
def load_model(path: str | os.PathLike[str]) -> Any:
    """Load a model that :func:`save_model` wrote; its predictions are equal to the last bit.

    The model is on the CPU, with ``device="cpu"``, wherever it was trained. It can be pickled,
    cloned, fitted again and exported. A network has no ``partial_fit`` any more.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    model : ranker or Pipeline
        Fitted.

    Raises
    ------
    FileNotFoundError
        If there is no file.
    ValueError
        If the file

        - is no regular file, or no saved model,
        - is damaged or has another layout,
        - names a class that :func:`save_model` does not accept,
        - unpacks to more than 64 MB and more than 20 times its size,
        - holds no fitted ranker with finite weights, or
        - holds a model that no longer gives a row of zeros a finite score, although it did when
          saved. Models with parts of scikit-learn are not checked for this.
    ImportError
        If safetensors or skops is missing: ``pip install "skultr[serving]"``.

    Warns
    -----
    UserWarning
        If the file was written with another version of skultr, or another major version of NumPy,
        scikit-learn, PyTorch or LightGBM. If another version of scikit-learn fitted a part,
        scikit-learn itself warns.

    Notes
    -----
    *Security.* No code of the file runs: objects of known classes are built from numbers and
    text. Only parts that the model names are read. Trees of LightGBM are checked before LightGBM
    reads them. Trees of scikit-learn are not checked: a malicious file with such trees can crash
    the process, or make it read memory outside the trees.
    """
    try:
        return _read(path)
    except (FileNotFoundError, PermissionError, ImportError, Warning):
        raise
    except Exception as error:  # of JSON, zip, safetensors, skops, LightGBM or torch
        raise ValueError(
            f"{path} cannot be loaded: save_model of this version did not write it, or it was "
            f"damaged or changed ({type(error).__name__}: {' '.join(str(error).split())}). Copy "
            "the file again, or save the model again."
        ) from error


def _is_saved(path):
    """Whether a file is a saved model, of any version; it is not read beyond its first bytes."""
    start = json.dumps({"format": _FORMAT})[:-1].encode()
    try:
        with zipfile.ZipFile(path) as file, file.open(_HEAD) as head:
            return head.read(len(start)) == start
    except (zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, RuntimeError):
        return False  # no archive, or one of another program


def _scores_zeros(model):
    """Whether a row of zeros has a finite score; an error if it has none."""
    # A file may state any number; more than a million do not fit the row, which is an error.
    n_features = min(model.n_features_in_, 1 << 20)
    row = np.zeros((1, n_features))
    if hasattr(model, "feature_names_in_"):
        row = pd.DataFrame(row, columns=model.feature_names_in_)
    scores = model.predict(row)
    return bool(np.isfinite(scores).sum() == 1)


def _versions():
    """Versions of those packages that are installed."""
    return {
        name: found.version for name in _PACKAGES for found in metadata.distributions(name=name)
    }


def _read(path):
    """The model in a file, checked."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError("it is no regular file")
    # Opened once, as another model may take its place; nothing is unpacked to disk.
    with open(path, "rb") as opened, zipfile.ZipFile(opened) as file:
        parts = _Parts(file, os.fstat(opened.fileno()).st_size, zipfile.ZIP_DEFLATED)
        head = _values(parts.pop(_HEAD))
        own = _versions()
        other = head["versions"]
        if (head["format"], head["layout"]) != (_FORMAT, _LAYOUT):
            raise ValueError(
                f"skultr {other['skultr']} wrote layout {head['layout']}, and skultr "
                f"{own['skultr']} reads {_LAYOUT}"
            )
        changed = _changed(own, other)
        if changed:
            warn_user(
                f"{path} was written by {', '.join(changed)}: predictions may differ. Compare "
                "them, and save the model again.",
                UserWarning,
            )
        # What a part of scikit-learn computes may be of any size.
        is_bounded = not any(name.endswith(".skops") for name in parts.sizes)
        model = Decoder(parts).decode(head["model"])
    fitted_steps(model)
    if is_bounded and head["scores_zeros"] and not _scores_zeros(model):
        raise ValueError("a row of zeros has no finite score, as it had when it was saved")
    return model


def _changed(own, other):
    """Packages of which another version wrote the file, in words."""
    changed = []
    # The first number alone of foreign packages: minor releases keep what predictions need.
    for name, n_numbers in _PACKAGES.items():
        if name not in own or name not in other:
            continue
        if own[name].split(".")[:n_numbers] != other[name].split(".")[:n_numbers]:
            changed.append(f"{name} {other[name]} (here {own[name]})")
    return changed


class _Parts:
    """Parts of an archive by name, each to be read once, and none of more than a bound."""

    def __init__(self, file: zipfile.ZipFile, n_bytes: int, packed: int) -> None:
        members = file.infolist()
        self._file = file
        self.n_bytes = n_bytes
        self.sizes = {part.filename: part.file_size for part in members}
        kinds = {part.compress_type for part in members}
        if len(self.sizes) < len(members) or not kinds <= {zipfile.ZIP_STORED, packed}:
            raise ValueError("several parts have one name, or one is compressed in another way")
        most = UNPACKED_BYTES.value + UNPACKED_PER_BYTE.value * n_bytes
        _check_size("bytes in all parts", sum(self.sizes.values()), most)

    def pop(self, name: str) -> bytes:
        """The bytes of a part, which is gone then."""
        with self._file.open(name) as part:
            # One more byte, so that the sum of a part that is longer than stated is another.
            return part.read(self.sizes.pop(name) + 1)


def _check_size(what, found, most):
    if found > most:
        raise ValueError(f"{found:,} {what}; expected at most {most:,}")


def _values(text, hook=None, n_more=0):
    """The values of JSON, if they are not too many."""
    what = "values of JSON (a tree of scikit-learn takes some 300, one of LightGBM none)"
    n_values = text.count(b"[") + text.count(b"{") + text.count(b",")
    _check_size(what, n_values, JSON_VALUES.value + n_more)
    return json.loads(text, object_hook=hook)


# Values as JSON and files, and back, with a list of the classes that may occur --------
_WEIGHTS = "weights.safetensors"
#: Folders whose public classes may occur: fitted, and as parameters of others.
_FITTED = ("skultr.rankers", "skultr.preprocessing")
_PUBLIC = (*_FITTED, "skultr.propensity", "skultr.click_models")
#: Other classes that may occur, by module.
_OTHERS = {
    "lightgbm": "LGBMRanker LGBMRegressor",
    "sklearn.pipeline": "Pipeline",
    "skultr._log._offsets": "FeatureOffsets",
    "skultr._torch._networks": "Dropout Linear ScaleFeatures SideBySide",
    "skultr.identifiability": "IdentifiabilityRepair",
    "skultr.identifiability._bias_features": "FactorVectors",
    "skultr.rankers._vectorization": "Hull",
    "torch.nn": "BatchNorm1d ELU Identity LayerNorm ModuleList Sequential Softplus",
}
#: What is not saved, beside all that pickles leave out: what only fits read, what is computed when
#: asked for, and the estimator of propensities, which may be of any class.
_NOT_SAVED = {
    *("_categories", "_correction", "_curve", "_factors", "_module"),
    *("_metadata_request", "_skl_callbacks", "propensity_"),
}
#: Parameters that may hold values of documents or rows of the log.
_OF_LOGS = ("relevance", "examination", "propensity")
#: Classes of which skops does not trust all by itself, and that are built from numbers and text
#: alone, by module.
_FROM_NUMBERS = {
    "numpy": "dtype",
    "sklearn._loss.link": "IdentityLink Interval LogLink",
    "sklearn._loss.loss": "AbsoluteError HalfGammaLoss HalfPoissonLoss HalfSquaredError "
    "HalfTweedieLoss HalfTweedieLossIdentity HuberLoss PinballLoss",
    "sklearn.compose._column_transformer": "make_column_selector",
    "sklearn.ensemble._hist_gradient_boosting.binning": "_BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor": "TreePredictor",
    "sklearn.feature_selection._univariate_selection": "f_regression",
    "sklearn.neural_network._stochastic_optimizers": "AdamOptimizer SGDOptimizer",
    "sklearn.tree._tree": "Tree",
}
_TRUSTED = [f"{home}.{name}" for home, names in _FROM_NUMBERS.items() for name in names.split()]


class Encoder:
    """Values as JSON, and files for arrays, boosters and parts of scikit-learn."""

    def __init__(self) -> None:
        #: Parameters whose defaults are saved in their place.
        self.dropped: set[str] = set()
        self._arrays: dict[str, np.ndarray] = {}
        self._files: dict[str, bytes] = {}
        self._fitted = True

    def parts(self) -> dict[str, bytes]:
        """Contents of the files, by name."""
        weights = optional("safetensors.numpy", "serving").save(self._arrays)
        return {_WEIGHTS: weights, **self._files}

    def encode(self, value: Any) -> Any:
        """What JSON holds of a value or a fitted estimator."""
        if value is None or isinstance(value, str) or type(value) in (bool, int, float):
            return value
        if isinstance(value, list):
            return [self.encode(each) for each in value]
        # A tuple with names is an object: it is built by its class again.
        if type(value) is tuple:
            return {"tuple": self.encode([*value])}
        if isinstance(value, dict):
            # As pairs, because keys of JSON are texts.
            return {"dict": self.encode([*value.items()])}
        return self._in_files(value)

    def _in_files(self, value):
        """What JSON holds of a value whose numbers or parts stand in files."""
        if isinstance(value, np.ndarray | np.generic):
            return self._array(np.asarray(value))
        if isinstance(value, pd.DataFrame):
            return self._frame(value)
        if isinstance(value, Booster):
            # All trees: the number that predict stands beside them.
            text = value.model_to_string(num_iteration=-1).encode()
            return {"booster": [self._file("booster", "txt", text), value.best_iteration]}
        if hasattr(value, "detach"):  # a tensor, without an import of torch
            kind = "parameter" if type(value).__name__ == "Parameter" else "tensor"
            return {kind: self._array(value.detach().cpu().numpy())}
        return self._object(value)

    def _frame(self, frame):
        columns = [(name, frame[name].to_numpy()) for name in frame.columns]
        index = frame.index
        return {"frame": self.encode([columns, index.name, index.to_numpy()])}

    def _array(self, array):
        if array.dtype.kind in "biuf":
            place = str(len(self._arrays))
            self._arrays[place] = array.copy(order="C")
            return {"array": place}
        if array.ndim == 1:
            return {"objects": self.encode(array.tolist())}
        raise TypeError(f"an array of {array.dtype} has no form in a saved model")

    def _object(self, value):
        value = getattr(value, "best_estimator_", value)  # of a search
        is_estimator = isinstance(value, BaseEstimator)
        if is_estimator and not self._fitted:
            value = clone(value)
        cls = type(value)
        if cls.__module__.startswith("sklearn.") and cls is not Pipeline:
            return {"sklearn": self._skops(value)}
        self._refuse_unknown(cls)
        if self._fitted:
            _refuse_ids_and_code(value)
        params = value.get_params(deep=False) if is_estimator else {}
        state = {}
        for name, part in _state(value).items():
            # Fitted attributes must be saved; of parameters a default will do.
            state[name] = self._param(value, name, part) if name in params else self.encode(part)
        return {"object": [cls.__name__, state]}

    def _refuse_unknown(self, cls):
        """Raise a TypeError for a class that a saved model may not name."""
        homes = _FITTED if self._fitted else _PUBLIC
        # By identity: a subclass of the user may have the name of a class of skultr.
        if _class_of(cls.__name__, homes) is not cls:
            raise TypeError(
                f"{cls.__name__} cannot be saved: a saved model holds no code and no ids, only "
                "rankers of skultr.rankers, LGBMRanker, LGBMRegressor and parts of scikit-learn. "
                "Pickle the model; or, if this is a click model, save a DistilledRanker with it "
                "as teacher, which scores documents by their features."
            )

    def _param(self, estimator, name, value):
        """A parameter, or its default if it cannot be saved."""
        # Parameters need not be fitted: of an estimator its clone is saved.
        before = self._fitted
        self._fitted = self._fitted and isinstance(estimator, Pipeline)
        try:
            if name in _OF_LOGS and not isinstance(value, str | BaseEstimator | None):
                raise TypeError(f"{name} is of documents or rows of the log")
            return self.encode("cpu" if name == "device" else value)
        except TypeError:
            # Code or rows of the log: the default stands in for them, and the user is told.
            default = inspect.signature(type(estimator)).parameters[name].default
            if default is inspect.Parameter.empty:
                raise
            self.dropped.add(f"{type(estimator).__name__}.{name}")
            return self.encode(default)
        finally:
            self._fitted = before

    def _skops(self, value):
        io = optional("skops.io", "serving")
        try:
            content = io.dumps(value)
            foreign = sorted({*io.get_untrusted_types(data=content)} - {*_TRUSTED})
        except Exception as error:  # of the object's own code
            foreign = [f"{type(error).__name__}: {error}"]
        if foreign:
            raise TypeError(
                f"{type(value).__name__} cannot be saved without code: {', '.join(foreign)}. Use "
                "functions of NumPy and classes of scikit-learn, or pickle the model."
            )
        return self._file("part", "skops", content)

    def _file(self, stem, ending, content):
        name = f"{stem}-{len(self._files)}.{ending}"
        self._files[name] = content
        return name


#: Values that are written as lists.
_LISTS = ("objects", "tuple", "dict", "frame")


class Decoder:
    """Values of JSON and files."""

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts
        self._arrays = optional("safetensors.numpy", "serving").load(parts.pop(_WEIGHTS))
        self._codes = {
            # Each once, as it was written: a file that names one often would fill memory.
            "array": lambda place: self._arrays.pop(place).copy()[()],
            "objects": lambda found: np.array(pd.Series(self.decode(found), dtype=object)),
            "tuple": lambda found: tuple(self.decode(found)),
            "dict": lambda found: dict(self.decode(found)),
            "frame": self._frame,
            "booster": self._booster,
            "tensor": self._tensor,
            "parameter": lambda found: import_module("torch").nn.Parameter(self._tensor(found)),
            "sklearn": self._skops,
            "object": self._object,
        }

    def decode(self, found: Any) -> Any:
        """The value."""
        if isinstance(found, list):
            return [self.decode(each) for each in found]
        if not isinstance(found, dict):
            return found
        ((kind, content),) = found.items()
        if kind in _LISTS and not isinstance(content, list):  # bytes of an array become objects
            raise ValueError(f"{kind} is {content!s:.80}; expected a list")
        return self._codes[kind](content)

    def _frame(self, found):
        columns, name, index = self.decode(found)
        if any(len(values) != len(index) for _, values in columns):
            raise ValueError("a table has columns of several lengths")
        return pd.DataFrame(dict(columns), index=pd.Index(index, name=name))

    def _booster(self, found):
        file, best_iteration = found
        return read_booster(self._parts.pop(file).decode(), best_iteration)

    def _tensor(self, found):
        values = self.decode(found)
        if values.dtype == np.float16 or not np.isfinite(values).all():
            raise ValueError("weights are float16 or not finite; expected finite float32")
        # Aligned as torch does it, for equal sums.
        return import_module("torch").tensor(values)

    def _skops(self, file):
        content = self._parts.pop(file)
        sizes = []  # of arrays, each as often as it is named
        with zipfile.ZipFile(BytesIO(content)) as inside:
            parts = _Parts(inside, len(content), zipfile.ZIP_STORED)

            def add_size(node):
                sizes.append(parts.sizes.get(node.get("file"), 0))

            n_more = self._parts.n_bytes // BYTES_PER_VALUE.value
            _values(parts.pop("schema.json"), add_size, n_more)
        _check_size("bytes in arrays", sum(sizes), UNPACKED_BYTES.value + len(content))
        # What skops does not know, beside the list, is an error of its own.
        with _ONE_PARSER:
            return optional("skops.io", "serving").loads(content, trusted=_TRUSTED)

    def _object(self, found):
        name, state = found
        cls = _class_of(name, _PUBLIC)
        if cls is None:
            raise ValueError(f"{name!r} is not among the classes of saved models")
        # Parts before the whole, as attributes hold finished objects.
        state = {name: self.decode(part) for name, part in state.items()}
        if issubclass(cls, tuple):
            return cls(**state)
        check_settings(_settings(cls, state))
        # Without __init__, which would draw weights or check parameters of a fit.
        value = cls.__new__(cls)
        if hasattr(cls, "named_parameters"):
            import_module("torch").nn.Module.__init__(value)
        vars(value).update(state)
        return value


def _settings(cls, state):
    """What LightGBM gets of a learner's state; of others, the number of threads."""
    if not issubclass(cls, LGBMModel):
        settings = {**(state.get("lgbm_params") or {})}
        if "n_jobs" in state:
            settings["n_jobs"] = state["n_jobs"]
        return settings
    params = [*inspect.signature(cls).parameters, "_objective"]
    settings = {name: state.get(name) for name in params}
    return {**settings, **state.get("_other_params", {})}


def _class_of(name, homes):
    """A class that may occur, by its name; None for any other name."""
    homes = [home for home in homes if name in import_module(home).__all__]
    homes += [home for home, names in _OTHERS.items() if name in names.split()]
    if not homes:
        return None
    found = getattr(import_module(homes[0]), name)
    return found if isinstance(found, type) else None  # functions are public, too


def _state(value):
    """Attributes that are saved, parameters among them."""
    if isinstance(value, tuple):
        return value._asdict()
    if hasattr(value, "named_parameters"):
        return _state_of_module(value)
    state = SlimPickles.__getstate__(value) if isinstance(value, SlimPickles) else vars(value)
    kept = {name: each for name, each in state.items() if name not in _NOT_SAVED}
    if "propensity_" in state:
        kept["_left_out"] = sorted({*kept.get("_left_out", ()), "propensity_"})
    return kept


def _state_of_module(module):
    """Attributes of a module of torch that are saved, as it is in evaluation."""
    inside = ("_parameters", "_buffers", "_modules")
    state = {}
    for name, value in vars(module).items():
        if name in inside or not name.startswith("_"):
            state[name] = value
    return {**state, "training": False}


def _refuse_ids_and_code(value):
    """Refuse estimators that need ids or code to predict."""
    name = type(value).__name__
    if not getattr(value, "_needs_features", True):
        raise ValueError(
            f"{name}(relevance='embedding') is a table of ids of documents, and a saved model "
            "holds none. Pickle the model, or save a DistilledRanker with it as teacher."
        )
    ids = [column for column in getattr(value, "_columns", ()) if column in IDS]
    if ids:
        raise ValueError(
            f"The bias factors of {name} are made of the ids in {ids}, and a saved model holds "
            "none. Candidates to be scored need no repair: save the steps after it."
        )
    for param in ("module", "bias_features"):
        if callable(getattr(value, param, None)):
            raise TypeError(
                f"{param} of this {name} is code of your own, and a saved model holds none. "
                "Pickle the model."
            )
