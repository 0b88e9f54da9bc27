"""What the constructors of all neural estimators share, described once.

A class names the shared parameters in groups, under "Other Parameters", with what is special to
it. ``describe_shared_parameters`` spreads each group over one entry per parameter, with type,
default and meaning, so that ``help``, editors and the documentation show all of them.
"""

from __future__ import annotations

import inspect
import re
import textwrap

#: Name -> (type, meaning); the default is that of the class.
SHARED_PARAMETERS = {
    "hidden_layer_sizes": (
        "sequence of int",
        "Number of units of each hidden layer (ELU); ``()`` is a linear model.",
    ),
    "learning_rate": ("float", "Step size of the optimizer."),
    "max_epochs": ("int", "Passes over the training lists, at most."),
    "batch_size": ("int", "Number of distinct lists (not rows) per step."),
    "weight_decay": (
        "float",
        'The optimizer\'s penalty on squared weights; decoupled with ``"adamw"``.',
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
    "early_stopping": ("bool", "Hold out queries, and stop when their loss no longer falls."),
    "validation_fraction": ("float", "Share of the queries held out, at least one query."),
    "n_iter_no_change": ("int", "Number of epochs without improvement before stopping."),
    "traffic_exponent": (
        "float",
        "A query weighs as much as its number of impressions to this power, from 0 to 1.",
    ),
    "scale_features": (
        "bool",
        "Signed logarithm and standardisation of the features, by the training documents. Missing "
        "values are put at the mean, and each feature that had some in training gets an indicator "
        "beside it. False if a pipeline scales already: missing values are then an error.",
    ),
    "module": (
        "torch.nn.Module, callable or None",
        "A network in place of the default one, or a function of the number of inputs (features, "
        "and indicators of missing values) that makes it. A network that is given has no "
        "indicators. Parameters that describe layers are then not used.",
    ),
    "net_params": (
        "dict or None",
        "Further settings of ``skorch.NeuralNet``; they win over the parameters here.",
    ),
    "device": ("str or torch.device", '``"cuda"`` trains and predicts on a GPU.'),
    "random_state": (
        "int, RandomState instance or None",
        "An int gives the same model in every fit on the same machine.",
    ),
    "verbose": ("int", "1 prints the losses of each epoch."),
}

_SECTION = re.compile(r"Other Parameters\n-+\n(?P<groups>.*?)\n\n", re.DOTALL)
_GROUP = re.compile(r"^(?P<names>\w+(?:, \w+)*)\n(?P<remark>(?: +.*\n)*)", re.MULTILINE)


def describe_shared_parameters(cls: type) -> None:
    """Spread the groups of "Other Parameters" of the docstring over one entry per parameter."""
    docstring = cls.__dict__.get("__doc__")
    if docstring is None:  # no docstring of its own, or python -OO
        return
    text = inspect.cleandoc(docstring)
    section = _SECTION.search(text)
    if section:
        entries = _GROUP.sub(lambda group: _entries(cls, group), section["groups"] + "\n")
        cls.__doc__ = text[: section.start("groups")] + entries + text[section.end("groups") + 1 :]


def _entries(cls, group):
    """One entry per name of a group; what is special to the class stands with the first."""
    remark, lines = group["remark"], ""
    names = group["names"].split(", ")
    if not SHARED_PARAMETERS.keys() >= {*names}:
        return group[0]  # those of a class of the user's
    for name in names:
        kind, meaning = SHARED_PARAMETERS[name]
        lines += f"{name} : {kind}, default={_shown(getattr(cls, name))}\n"
        lines += textwrap.indent(textwrap.fill(meaning, 90), " " * 4) + "\n" + remark
        remark = ""
    return lines


def _shown(default):
    return f'"{default}"' if isinstance(default, str) else repr(default)
