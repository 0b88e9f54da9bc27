"""What neural estimators share, described once: parameters, fitted attributes, and passages.

A class names the shared ones in groups, under "Other Parameters" and "Attributes", with what is
special to it. ``describe_shared_parameters`` spreads each group over one entry per name, with
type, default and meaning, so that ``help``, editors and the documentation show all of them.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from functools import partial

from .._base._shared_text import with_shared_text

#: ``variant="published"``: the network and the training that papers since 2018 compare methods in,
#: those of the toolbox ULTRA by the authors of dual learning, where all sessions weigh the same.
PUBLISHED_NETWORK = {
    "hidden_layer_sizes": (512, 256, 128),
    "normalization": "layer",
    "optimizer": "adagrad",
    "learning_rate": 0.05,
    "batch_size": 256,
    "weight_decay": 0.0,
    "early_stopping": True,
    "traffic_exponent": 1.0,
    "_averages_weights": False,
}

#: Name -> (type, meaning); the default is that of the class.
SHARED_PARAMETERS = {
    "hidden_layer_sizes": (
        "sequence of int",
        "Number of units of each hidden layer (ELU); ``()`` is a linear model.",
    ),
    "learning_rate": ("float", "Step size of the optimizer."),
    "max_epochs": (
        'int or "auto"',
        'Passes over the training lists. "auto" chooses by the size of the log. It gives 200 '
        "steps for 300 queries, and more with the square root of the number of queries. With "
        "fewer than three queries per feature there are fewer steps, in proportion. With fewer "
        "than 50 queries there are always 200. Vectors take five times as many steps, trust 2.5 "
        "times. With early stopping there are at most 100 passes.",
    ),
    "batch_size": (
        'int or "auto"',
        'Number of distinct lists (not rows) per step. "auto" takes a 50th of the lists trained '
        "on, at least 64 and at most 256. Larger batches then take longer steps: step sizes are "
        "multiplied by the square root of this number over 64.",
    ),
    "weight_decay": (
        'float or "auto"',
        "What keeps weights small; biases are free. A number is the weight decay of the "
        'optimizer, which ``"adamw"`` applies beside the gradient. "auto" has two parts. With '
        '"adamw" a weight that no gradient pulls falls to 55 % within the steps of '
        '``max_epochs="auto"``. And where a log has fewer than 100 clicks per feature, the loss '
        "has the penalty of ridge regression, half of the sum of squared weights times a factor: "
        "features per click less 1/100, but 0.1 at most. For ``CLDRanker`` and ``HeckmanRanker`` "
        "it is features per document shown less 1/25, where that is more; for ``CLDRanker`` three "
        "times as much, but 0.1 at most, times the share of these documents in its loss. The "
        "second part is 0 for a ``module`` of your own, in ``partial_fit`` after a first fit, in "
        "``AffineRanker`` and ``PRSRanker``, and for pairs of CLD in a ``variant``.",
    ),
    "dropout": ("float", "Probability of dropping a hidden unit in training."),
    "normalization": (
        '{"layer", "batch"} or None',
        "Normalisation of the units before each activation.",
    ),
    "optimizer": (
        '{"adam", "adagrad", "adamw"} or a class of torch.optim',
        "What turns gradients into steps.",
    ),
    "early_stopping": (
        "bool",
        "Hold out queries, and stop when their loss no longer falls. With only a few hundred "
        "queries, the result depends on which ones are held out.",
    ),
    "validation_fraction": (
        "float",
        "With ``early_stopping``: share of the queries held out, at least one query.",
    ),
    "n_iter_no_change": (
        "int",
        "With early stopping: number of epochs without improvement before stopping.",
    ),
    "traffic_exponent": (
        "float",
        "A query weighs as much as its number of impressions to this power, from 0 to 1.",
    ),
    "scale_features": (
        "bool",
        "Scale the features: take the signed logarithm, then standardise by the training "
        "documents. Missing values become the mean, and each feature that had some in training "
        "gets an indicator beside it. Set it to False if your pipeline scales already; missing "
        "values are then an error.",
    ),
    "module": (
        "torch.nn.Module, callable or None",
        "Your own network, or a function that makes one from the number of its inputs. Inputs "
        "are features and, for a function, indicators of missing values. Parameters that describe "
        "layers are then not used.",
    ),
    "net_params": (
        "dict or None",
        "Further settings of ``skorch.NeuralNet``; they win over the parameters here.",
    ),
    "device": (
        "str or torch.device",
        '``"cuda"`` trains and predicts on a GPU. It pays with a ``batch_size`` of thousands: an '
        "epoch of 100,000 lists of 10 took 0.04 s on an H100 in batches of 4,096, 0.5 s on one "
        "core of a processor, and in batches of 64 2.1 s and 1.5 s.",
    ),
    "random_state": (
        "int, RandomState instance or None",
        "An int gives the same model in every fit on the same machine.",
    ),
    "verbose": ("int", "1 prints the losses of each epoch."),
}

#: Name -> (type, meaning).
SHARED_ATTRIBUTES = {
    "examination_comparison_": (
        "DataFrame",
        'Only where a network was trained for ``examination="auto"``: the curves of ``table`` '
        "(with its ``standard_error``) and ``network``, and the ``combined`` one, that of "
        "``examination_``. :meth:`skultr.plotting.ExaminationDisplay.from_comparison` draws it.",
    ),
    "network_": (
        "torch.nn.Sequential",
        "Scaling of the features, then the scoring network: the mean of the networks after each "
        "step of the training, the later the more.",
    ),
    "net_": (
        "skorch.NeuralNet",
        "The net that trained ``network_``; pickles leave it out.",
    ),
    "history_": (
        "DataFrame of shape (`n_iter_`, 1 or 2)",
        "Learning curves: training and, with ``early_stopping``, validation loss by epoch. Only "
        "the training loss has a penalty (``weight_decay``).",
    ),
    "n_iter_": ("int", "Number of epochs run."),
    "n_features_in_": ("int", ""),
    "feature_names_in_": (
        "ndarray of shape (`n_features_in_`,)",
        "Only from frames with text column names.",
    ),
    "propensity_": (
        "estimator",
        "The fitted clone, if ``propensity`` is an estimator. Pickles leave out curves of users.",
    ),
    "largest_weight_": ("float", "Largest weight of a click, divided by the mean weight."),
    "clipped_share_": ("float", "Share of the clicks whose propensity was below ``clip``."),
    "estimator_": (
        "estimator",
        "Only with ``estimator``: its fitted clone. The next four attributes exist only without.",
    ),
}

#: What several classes say alike, for a line ``{name}`` of their docstrings.
SHARED_PASSAGES = {
    "network": """Other Parameters
----------------
hidden_layer_sizes, dropout, normalization, module, scale_features
    This and those below are shared by all neural rankers, see
    :ref:`network_parameters`.
learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
traffic_exponent
early_stopping, validation_fraction, n_iter_no_change""",
    "examination": """examination : {"auto", "table", "network"}, default="auto"
    Where examination comes from, for a network. "network" is the published method: it estimates
    examination from what the relevance network leaves unexplained. If the production ranker used
    signals that the features lack, this curve is too steep, and more clicks make it worse.
    "table" compares the clicks of the same documents, with the same features, at several
    positions. The log must then connect all bias factors. "auto" uses the table where documents
    moved and the network elsewhere, each weighted by its precision. It uses the table alone if
    the standard errors of its log examination are at most 0.25 (root mean square over the
    clicks). With "table" and "auto" the network is then""",
    "correction": """clip : float in (0, 1] or None, default=0.1
    Lower bound on propensities, relative to the largest one (they are known only up to a
    factor). Smaller propensities are raised to it, so that no click weighs more than ``1 / clip``
    times as much as another. This reduces the variance, and adds bias in favour of the order that
    was served. None means no bound.
naive_weight : float in [0, 1], default=0
    Share of the loss that takes clicks as they are: with 1 they are not corrected, as in
    :class:`NaiveRanker`. A search may choose it by held-out clicks.""",
    "form": """correction : {"auto", "divide", "offset", "doubly_robust"}, default="auto"
    How a network is corrected by propensities.

    - "divide" gives a click the weight 1 over its propensity, as published.
    - "offset" adds the logarithm of the propensity to the score before the softmax. No click
      then weighs more than another: the optimum is the same, and the variance smaller (see
      Notes).
    - "doubly_robust" divides too, and fills in what ``clip`` takes away by a model of relevance
      (Oosterhuis 2023): a network that was fitted to the clicks of other queries. It takes about
      twice as long, and changes nothing where no propensity is below the bound. See
      :ref:`doubly_robust`.
    - "auto" chooses for you. It divides when clicks are plentiful, an effective sample of 100
      per query; otherwise it uses the offset. With another ``loss`` or an ``estimator`` it
      divides, and there is no offset.""",
    "source": """None uses the role if there is one. Without it the curve is learned from the log.
It is that of documents which moved, with the same features, if these are enough. Otherwise it is
that of dual learning, as in :class:`DLARanker`.""",
    "confounding": """Raises
------
NotIdentifiableError
    With ``examination="table"``, if no clicked document connects some bias factors.

Warns
-----
NotIdentifiableWarning
    If the log does not determine relevance.
AssumptionWarning
    If the production ranker used signals that the features lack: examination by the network
    differs from that by documents that moved, by more than chance and by 15 % on average. Not
    tested where the table alone is used.""",
    "refits": r"""See Also
--------
EnsembleRanker : Decides by held-out clicks how much a correction weighs; this ranker always
    corrects.

Notes
-----
The last training has examination :math:`o`, at least ``clip`` times the largest, as an offset:
:math:`-\sum_i c_i \log \mathrm{softmax}(g + \log o)_i`. From an effective sample of 100 clicks
per query on, variance matters less, and clicks are divided by it instead.

Where most clicks of a query fell on pages of one row, as in feeds and bandit logs, its rows
are compared across pages, with the logarithm of their impressions as a further offset.""",
    "learner": """loss : {"softmax", "bce", "mse", "pairwise", "lambda"}, default="softmax"
    Listwise, pointwise (two) or pairwise (two) loss of the network.
estimator : estimator, default=None
    Learner to use instead of a network: a LightGBM ranker, or any regressor whose ``fit``
    takes ``sample_weight``. See :ref:`learners`.""",
    "corrections": """examination_comparison_ : DataFrame
    For propensities that were not estimated from this log: by bias factor, the given curve
    (column ``told``) and the one ``implied`` by the clicks, relative to the first factor. The
    latter comes from documents that moved or, without any, from the fitted scores. Where dual
    learning was needed to learn the curve: those of ``table`` (with its ``standard_error``) and
    ``network``, and the ``combined`` one.
propensity_
correction_ : {"divide", "offset", "doubly_robust"}
    The form that was used.
clip_ : float or None
    The bound that was used: ``clip`` times the largest propensity.""",
}

#: A section of a docstring, from its title to the next empty line.
_SECTION = r"{}\n-+\n(?P<groups>.*?)\n(?:\n|$)"
#: Names of a group on one line, and indented remarks below it.
_GROUP = re.compile(r"^(?P<names>\w+(?:, \w+)*)\n(?P<remark>(?: +.*\n)*)", re.MULTILINE)


def describe_shared_parameters(cls: type) -> None:
    """Fill in shared passages, and spread groups of shared names over one entry per name."""
    with_shared_text(**SHARED_PASSAGES)(cls)
    text = cls.__dict__.get("__doc__")
    if text is None:  # no docstring of its own, or python -OO
        return
    text = inspect.cleandoc(text) + "\n"
    text = _spread(cls, text, "Other Parameters", SHARED_PARAMETERS)
    text = _spread(cls, text, "Attributes", SHARED_ATTRIBUTES)
    cls.__doc__ = text.rstrip("\n")


def _spread(cls, text, title, shared):
    """A docstring with one entry per shared name in a section, if it has that section."""
    section = re.search(_SECTION.format(title), text, re.DOTALL)
    if section is None:
        return text
    start, end = section.span("groups")
    entries = _GROUP.sub(partial(_entries, cls, shared), section["groups"] + "\n")
    return text[:start] + entries + text[end + 1 :]


def _entries(cls, shared, group):
    """One entry per name of a group; what is special to the class stands with the first."""
    names = group["names"].split(", ")
    if not shared.keys() >= {*names}:
        return group[0]  # those of a class of the user's
    lines = []
    for name in names:
        kind, meaning = shared[name]
        head = f"{name} : {kind}"
        if shared is SHARED_PARAMETERS:
            head += f", default={_shown(getattr(cls, name))}"
        lines.append(head)
        if meaning:
            # Docstrings have lines of 99 characters, of which some are indentation.
            lines.append(textwrap.indent(textwrap.fill(meaning, 90), " " * 4))
        if name == names[0]:
            lines += group["remark"].splitlines()
    return "\n".join(lines) + "\n"


def _shown(default):
    return f'"{default}"' if isinstance(default, str) else repr(default)
