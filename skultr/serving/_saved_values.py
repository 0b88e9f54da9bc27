"""Fitted estimators as JSON and files, and back, with a list of all that may occur."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import Booster
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Bunch

from .._log._faults import IDS

__all__ = ["Decoder", "Encoder"]

_WEIGHTS = "weights.safetensors"
#: Folders whose public estimators may occur: fitted, or as parameters of others.
_FITTED = ("skultr.rankers", "skultr.preprocessing", "skultr.identifiability")
_HOMES = (*_FITTED, "skultr.propensity", "skultr.click_models")
#: Other classes that may occur, by module.
_OTHERS = {
    "lightgbm.sklearn": "LGBMRanker LGBMRegressor",
    "sklearn.pipeline": "Pipeline",
    "skultr._log._offsets": "FeatureOffsets",
    "skultr._torch._networks": "ScaleFeatures SideBySide",
    "skultr._torch._stream": "Dropout Linear",
    "skultr.identifiability._bias_features": "FactorVectors",
    "skultr.rankers._hull": "Hull",
    "torch.nn.modules.activation": "ELU Softplus",
    "torch.nn.modules.batchnorm": "BatchNorm1d",
    "torch.nn.modules.container": "ModuleList Sequential",
    "torch.nn.modules.linear": "Identity",
    "torch.nn.modules.normalization": "LayerNorm",
}
#: What predictions and tables by bias factor need of what ``fit`` sets. Nothing else is saved: it
#: may hold ids.
_KEPT = """
    n_features_in_ feature_names_in_ _offsets columns values _click_column _sklearn_output_config
    network_ click_network_ selection_network_ student_network_ _scaling _shift _scale _units
    _selects _hull center _axes _normals _bounds _variance_range _log_scale _spreads
    coef_ intercept_ selection_coef_ selection_intercept_ mills_coef_ mills_collinearity_
    booster_ best_iteration_ num_leaves_ n_iter_ estimator_ student_ estimators_ weights_ depth_
    evidence_ correction_ clip_ gamma_ scale_ effective_sample_size_ largest_weight_ clipped_share_
    examination_ examination_comparison_ trust_ bias_ratios_ observation_embedding_ link_
    _factor_logits _bias_values transformer_ factors_ merges_ total_cost_ error_bound_if_smooth_
    is_identifiable_ _columns _codes _vectors _most_frequent _space factors bias_features
    position_weight merging _Booster _evals_result _best_score _best_iteration _other_params
    _objective _class_weight _class_map _classes _n_classes _n_features _n_features_in
    _fitted_with_feature_names fitted_
"""
#: What replaces functions there: of trees that are grown, of distances to new bias factors.
_INSTEAD_OF_CODE: dict[str, Any] = {"_objective": None, "bias_features": {}}
#: Types that skops does not trust by itself, and that are built from numbers and text alone.
_TRUSTED = {
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


class Encoder:
    """Values as JSON, and files for arrays, boosters and parts of scikit-learn.

    Attributes
    ----------
    dropped : list of str
        Parameters whose defaults are saved in their place.
    """

    def __init__(self) -> None:
        self.dropped: list[str] = []
        self._arrays: dict[str, np.ndarray] = {}
        self._places: dict[Any, str] = {}
        self._files: dict[str, bytes] = {}
        self._fitted = True
        #: The first type that fits counts: numbers of NumPy can be floats, too, and come back as
        #: what they are, because sums with float32 differ.
        self._codes = (
            (str, str),
            (np.ndarray | np.generic, lambda value: {"kind": "array", **self._array(value)}),
            (type(None) | int | float, lambda value: value),
            (list, lambda value: [*map(self.encode, value)]),
            (dict, lambda value: {"kind": "dict", "items": self.encode([*value.items()])}),
            (pd.DataFrame, self._frame),
            (Booster, self._booster),
        )

    def parts(self) -> dict[str, bytes]:
        """Contents of the files, by name."""
        return {_WEIGHTS: _optional("safetensors.numpy").save(self._arrays), **self._files}

    def encode(self, value: Any) -> Any:
        """What JSON holds of a value or a fitted estimator."""
        for kinds, code in self._codes:
            if isinstance(value, kinds):
                return code(value)
        if type(value) is tuple:
            return {"kind": "tuple", "values": self.encode([*value])}
        if hasattr(value, "detach"):  # a tensor, without an import of torch
            is_parameter = type(value).__name__ == "Parameter"
            array = self._array(value.detach().cpu().numpy())
            return {"kind": "tensor", "is_parameter": is_parameter, **array}
        return self._object(value)

    def _object(self, value):
        value = getattr(value, "best_estimator_", value)  # of a search
        is_estimator = isinstance(value, BaseEstimator)
        if is_estimator and not self._fitted:
            value = clone(value)
        name = _name_of(type(value))
        if name.startswith("sklearn.") and name != "sklearn.pipeline.Pipeline":
            return {"kind": "sklearn", "file": self._skops(value)}
        if _class_of(name) is not type(value):
            raise TypeError(
                f"A saved model holds no code, and {name} is not among the classes that "
                "load_model builds: those of skultr, scikit-learn's, LGBMRanker and "
                "LGBMRegressor. Use one of these, or pickle the model."
            )
        if is_estimator and self._fitted:
            _refuse_ids_and_code(value, name)
        params = self._params(value, name) if is_estimator else {}
        state = {each: self.encode(part) for each, part in _state(value).items()}
        return {"kind": "object", "class": name, "state": {**state, **params}}

    def _params(self, value, name):
        """Parameters, with defaults for those that cannot be saved."""
        found, defaults = {}, inspect.signature(type(value)).parameters
        before, self._fitted = self._fitted, self._fitted and name.startswith("sklearn.")
        for name, each in value.get_params(deep=False).items():
            try:
                if name in ("relevance", "examination") and not isinstance(each, str | None):
                    raise TypeError(f"{name} is of documents, by their ids")
                found[name] = self.encode("cpu" if name == "device" else each)
            except TypeError:
                if self._fitted or defaults[name].default is inspect.Parameter.empty:
                    raise
                found[name] = self.encode(defaults[name].default)
                self.dropped.append(f"{type(value).__name__}.{name}")
        self._fitted = before
        return found

    def _array(self, array):
        array = np.asarray(array)
        if array.dtype.kind not in "biuf" and array.ndim == 1:
            return {"values": self.encode(array.tolist())}
        if array.dtype.kind not in "biuf":
            raise TypeError(f"an array of {array.dtype} has no form in a saved model")
        is_transposed = array.flags.f_contiguous and not array.flags.c_contiguous
        stored = (array.T if is_transposed else array).copy(order="C")
        key = stored.dtype.str, stored.shape, stored.tobytes()
        place = self._places.setdefault(key, str(len(self._places)))
        self._arrays[place] = stored
        return {"place": place, "transposed": is_transposed}

    def _frame(self, value):
        columns = [[name, value[name].to_numpy()] for name in value.columns]
        index = [value.index.name, value.index.to_numpy()]
        return {"kind": "frame", "columns": self.encode(columns), "index": self.encode(index)}

    def _booster(self, value):
        text = value.model_to_string(num_iteration=-1).encode()
        file = self._file("booster", "txt", text)
        return {"kind": "booster", "file": file, "best_iteration": value.best_iteration}

    def _skops(self, value):
        io = _optional("skops.io")
        try:
            content = io.dumps(value)
            foreign = sorted({*io.get_untrusted_types(data=content)} - {*_trusted()})
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


class Decoder:
    """Values of JSON and files.

    Parameters
    ----------
    parts : mapping of str to bytes
        Contents of the files, by name.
    """

    def __init__(self, parts: Mapping[str, bytes]) -> None:
        self._parts = parts
        self._arrays = _optional("safetensors.numpy").load(parts[_WEIGHTS])
        self._codes = {
            "array": self._array,
            "tuple": lambda found: tuple(self.decode(found["values"])),
            "dict": lambda found: dict(self.decode(found["items"])),
            "tensor": self._tensor,
            "frame": self._frame,
            "booster": self._booster,
            "sklearn": self._skops,
            "object": self._object,
        }

    def decode(self, found: Any) -> Any:
        """The value."""
        if isinstance(found, list):
            return [self.decode(each) for each in found]
        return self._codes[found["kind"]](found) if isinstance(found, dict) else found

    def _array(self, found):
        if "place" in found:
            array = self._arrays[found["place"]].copy()
            return array.T if found["transposed"] else array[()]
        values = self.decode(found["values"])
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array

    def _tensor(self, found):
        import torch

        tensor = torch.tensor(self._array(found))  # aligned as torch does it, for equal sums
        return torch.nn.Parameter(tensor) if found["is_parameter"] else tensor

    def _frame(self, found):
        name, index = self.decode(found["index"])
        columns = dict(self.decode(found["columns"]))
        return pd.DataFrame(columns, index=pd.Index(index, name=name))

    def _booster(self, found):
        booster = Booster(model_str=self._parts[found["file"]].decode())
        booster.best_iteration = found["best_iteration"]
        return booster

    def _skops(self, found):
        return _optional("skops.io").loads(self._parts[found["file"]], trusted=_trusted())

    def _object(self, found):
        cls = _class_of(found["class"])
        if cls is None:
            raise ValueError(f"{found['class']!r} is not among the classes of saved models")
        state = {name: self.decode(each) for name, each in found["state"].items()}
        if issubclass(cls, tuple):
            return cls(**state)
        value = cls.__new__(cls)
        if hasattr(cls, "named_parameters"):
            import torch

            torch.nn.Module.__init__(value)
        vars(value).update(state)
        if "estimators_" in state:
            names = [name for name, _ in value._members()]
            members = dict(zip(names, state["estimators_"], strict=True))
            value.named_estimators_ = Bunch(**members)
        _try_networks(state)
        return value


def _trusted():
    return [f"{home}.{name}" for home, names in _TRUSTED.items() for name in names.split()]


def _name_of(cls):
    """Public name of a class of skultr, full name of any other."""
    home = ".".join(cls.__module__.split(".")[:2])
    public = home in _HOMES and getattr(import_module(home), cls.__name__, None) is cls
    return f"{home if public else cls.__module__}.{cls.__qualname__}"


def _class_of(name):
    """A class that may occur, by its name; None for any other name."""
    home, _, last = name.rpartition(".")
    public = import_module(home).__all__ if home in _HOMES else _OTHERS.get(home, "").split()
    found = getattr(import_module(home), last) if last in public else None
    return found if isinstance(found, type) else None


def _state(value):
    """Attributes that are saved, beside parameters of estimators."""
    own = value._asdict() if isinstance(value, tuple) else vars(value)
    if hasattr(value, "named_parameters"):  # a module of torch
        inside = ("_parameters", "_buffers", "_modules")
        state = {name: own[name] for name in own if name in inside or name[0] != "_"}
        return {**state, "training": False}
    state = {name: own[name] for name in own if name in _KEPT.split()}
    return state | {
        name: instead for name, instead in _INSTEAD_OF_CODE.items() if callable(state.get(name))
    }


def _refuse_ids_and_code(value, name):
    """Refuse estimators that need ids or code to predict."""
    if name.startswith("skultr.") and not name.startswith(_FITTED):
        raise TypeError(
            f"{name} is no ranker of skultr.rankers. Pickle it, or save a DistilledRanker with it "
            "as teacher, which scores documents by their features."
        )
    if getattr(value, "module", None) is not None:
        raise TypeError(
            f"The network of {name} is a module of your own, and a saved model holds no code. "
            "Describe the network by hidden_layer_sizes, or pickle the model."
        )
    if not getattr(value, "_needs_features", True):
        raise ValueError(
            f"{name}(relevance='embedding') is a table of ids of documents, and a saved model "
            "holds none. Save a DistilledRanker with it as teacher, which scores documents by "
            "their features, or pickle the model."
        )
    ids = [column for column in getattr(value, "_columns", ()) if column in IDS]
    if ids:
        raise ValueError(
            f"The bias factors of {name} are made of the ids in {ids}, and a saved model holds "
            "none. Candidates to be scored need no repair: save the steps after it."
        )


def _try_networks(state):
    """Raise unless the layers of each network fit together."""
    for name, network in state.items():
        if name.endswith(("network_", "_scaling")) and network is not None:
            import torch

            dtype = next((each.dtype for each in network.parameters()), torch.float32)
            with torch.inference_mode():
                network(torch.zeros(1, state["n_features_in_"], dtype=dtype))


def _optional(name):
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"{package} is missing: pip install skultr[serving]") from error
