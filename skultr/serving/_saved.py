"""Models on disk without pickle: one file with JSON, weights and the text of trees."""

from __future__ import annotations

import json
import os
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

from sklearn.utils.validation import check_is_fitted

from .._base._sklearn import validate_params
from ..exceptions import warn_user
from ..rankers._ranker import BaseRanker
from ._saved_values import Decoder, Encoder
from ._served_model import steps_of

_FORMAT, _LAYOUT, _HEAD = "skultr model", 1, "model.json"
_PACKAGES = ("skultr", "numpy", "scikit-learn", "torch", "lightgbm")


@validate_params({"path": [str, os.PathLike]}, prefer_skip_nested_validation=True)
def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file that holds no pickle, and no rows or ids of the log.

    Parameters
    ----------
    model : ranker of :mod:`skultr.rankers`, or Pipeline or search of one
        Fitted. A search is saved as its ``best_estimator_``.
    path : str or path-like
        The file, a zip archive. What is there is replaced, at once.

    Raises
    ------
    TypeError
        If a part is code (a ``module`` of your own, a subclass, a function in a transformer, a
        learner that is not of scikit-learn or LightGBM), or the model is no ranker of this list.
    ValueError
        If it predicts by ids: ``relevance="embedding"``, or a repair whose bias factors are
        values of ``qid``, ``session``, ``doc`` or ``user``.
    ImportError
        If safetensors or skops is missing: ``pip install skultr[serving]``.

    Warns
    -----
    UserWarning
        If parameters are code or of the log (callbacks in ``net_params``, given or fitted
        propensities, a generator as ``random_state``): the loaded model has their defaults.

    Notes
    -----
    The archive holds ``model.json`` (parameters, tables, versions of packages),
    ``weights.safetensors`` (all arrays), the text of each LightGBM booster, and a ``.skops`` file
    for each part of scikit-learn. It leaves out what pickles leave out (labels of documents, the
    graph and plans of a repair, a teacher), fitted propensities, and what ``partial_fit`` of a
    network continues. Bias factors are kept: if a column ``bias`` held ids of users, they are in
    the file. So are rows that are the model, as the support vectors of an ``SVR``.

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
    steps = steps_of(model)
    final = steps[-1]
    if not isinstance(final, BaseRanker):
        raise TypeError(
            f"model is, or ends in, {final!r:.80}; expected a fitted ranker of skultr.rankers, or "
            "a Pipeline or search of one."
        )
    for step in steps:
        check_is_fitted(step)
    path, encoder = Path(path), Encoder()
    head = {
        "format": _FORMAT,
        "layout": _LAYOUT,
        "versions": {name: metadata.version(name) for name in _PACKAGES},
        "model": encoder.encode(model),
    }
    parts = {_HEAD: json.dumps(head).encode(), **encoder.parts()}
    beside = path.with_name(f"{path.name}.{uuid4().hex}")  # readers see the old or the new model
    try:
        with zipfile.ZipFile(beside, "w") as file:
            for name, content in parts.items():
                # Without the time of day, so that equal models are equal files.
                file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    if encoder.dropped:
        warn_user(
            "Not saved, because they are code, of the log or fitted: "
            f"{', '.join(sorted(encoder.dropped))}. Predictions need none of them. The loaded "
            "model has their defaults, with which its clones are trained.",
            UserWarning,
        )


@validate_params({"path": [str, os.PathLike]}, prefer_skip_nested_validation=True)
def load_model(path: str | os.PathLike[str]) -> Any:
    """The model that :func:`save_model` wrote; its predictions are equal to the last bit.

    It is on the CPU, with ``device="cpu"``, wherever it was trained. It can be pickled, cloned,
    fitted again and exported; a network has no ``partial_fit`` any more.

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
        If the file is no saved model, is damaged, has another layout, or names a class that
        :func:`save_model` does not accept.
    ImportError
        If safetensors or skops is missing: ``pip install skultr[serving]``.

    Warns
    -----
    UserWarning
        If another version of skultr wrote the file. Of parts that another version of scikit-learn
        fitted, scikit-learn itself warns.

    Notes
    -----
    Objects of known classes are built from numbers and text, and no code of the file runs. But
    LightGBM and scikit-learn do not check the trees that they read: a file made to harm can crash
    the process, or have it read memory that is not part of the trees.
    """
    try:
        with zipfile.ZipFile(path) as file:  # nothing is unpacked to disk
            parts = {name: file.read(name) for name in file.namelist()}
        head = json.loads(parts[_HEAD])
        own, other = metadata.version("skultr"), head["versions"]["skultr"]
        if (head["format"], head["layout"]) != (_FORMAT, _LAYOUT):
            raise ValueError(
                f"skultr {other} wrote layout {head['layout']}, and skultr {own} reads {_LAYOUT}"
            )
        if own != other:
            warn_user(
                f"{path} was written by skultr {other}, and this is skultr {own}: predictions may "
                "differ. Compare them, and save the model again.",
                UserWarning,
            )
        return Decoder(parts).decode(head["model"])
    except (OSError, ImportError, Warning):
        raise
    except Exception as error:  # of JSON, zip, safetensors, skops, LightGBM or torch
        raise ValueError(
            f"{path} is no model that save_model of this version wrote, or was damaged or changed "
            f"({type(error).__name__}: {error}). Copy the file again, or save the model again."
        ) from error
