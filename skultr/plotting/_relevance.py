"""What models say of documents: their embeddings, and whether scores copy the old ranking."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression
from sklearn.utils.validation import check_is_fitted

from .._base._typing import (
    ArrayLike,
    Column,
    Frame,
    Predictor,
    RandomState,
    Table,
)
from .._log._roles import read_role
from ..metrics._click_scorers import annotated_documents
from ..metrics._dependence import CMIPEstimator, cmip_score
from ..metrics._scorers import model_and_input
from ._axes import (
    TRUTH,
    Display,
    factor_text,
    outwards,
    shades,
)
from ._thresholds import COPIES, HARDLY_COPIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.colors import Colormap
    from matplotlib.lines import Line2D

#: Up to this number of values of relevance, each has a colour of its own.
_MAX_GRADES = 10
_ARROWS = "#b23a48"
#: Points: the size of a name of a bias factor.
_NAME_SIZE = 9
#: Points: how far a name is from the longest arrow at least.
_NAME_AWAY = 9
#: Points: the room that a name takes across its direction.
_NAME_ROOM = 13
#: Inches from the axes to below their label.
_BELOW_LABEL = 0.48
#: Inches of the axes from which on the legend under them is one line.
_ONE_LINE = 3.6
#: The axis of logged positions, which are whole numbers to a reader.
_LOGGED = "mean logged position"
#: Verdicts on CMIP from good to bad, and their colours, readable on white.
_VERDICTS = {
    "hardly copies the old ranking": "#1a6b3c",
    "copies the old ranking in part": "#8a5a00",
    "copies the old ranking": "#b3261e",
}


@dataclass(eq=False, repr=False)
class EmbeddingDisplay(Display):
    """Plot of the embeddings of documents, bias factors and base vectors in one space.

    Create it with :meth:`from_estimator`.

    - Documents are points, coloured by relevance, with a large dot at the mean of each grade.
    - Bias factors are arrows. Under a bias factor, the click rate of a document increases along
      its arrow; a longer arrow means a steeper increase.
    - Base vectors, along which the queries are ranked, are black dots.

    Parameters
    ----------
    relevance_embedding : array-like of shape (n_documents, n_axes)
    observation_embedding : DataFrame of shape (n_factors, n_axes)
        Indexed by bias factor.
    base_vectors : DataFrame of shape (n_queries, n_axes)
        Indexed by query.
    relevance : array-like of shape (n_documents,)
        Grades.

    {attributes}
    points_ : matplotlib.collections.PathCollection
        The documents.
    means_ : matplotlib.collections.PathCollection or None
        The mean of each grade; None for more than 10 grades.
    base_points_ : matplotlib.collections.PathCollection
        The base vectors.
    arrows_ : dict of bias factor to matplotlib.text.Annotation
    text_ : list of matplotlib.text.Text
        The names of the bias factors; empty if there are too many.
    arrow_scale_ : float
        Factor by which observation embeddings and base vectors are multiplied in the plot.

    See Also
    --------
    skultr.VectorizationRanker : The model.

    Notes
    -----
    Embeddings are determined up to an invertible linear map only, so that the learned axes have no
    meaning. :meth:`from_estimator` uses axes that follow from the products of the two embeddings,
    which are determined:

    - Observation embeddings have second moment one in each direction. The distance of two
      documents is then the root mean square difference of their products over bias factors.
    - The mean document is the origin, because only differences between documents of a list affect
      clicks.
    - The first axis is along the mean base vector: documents further right are ranked higher. The
      others are the principal axes of the documents in the orthogonal complement, by decreasing
      spread.

    With the default ``link="logit"``, products are logarithms of click rates.

    References
    ----------
    M. Chen et al. (2022). Scalar is not enough: Vectorization-based unbiased learning to rank.
    Figure 5.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.plotting import EmbeddingDisplay
    >>> observation = pd.DataFrame([[1.0, 0.5], [1.0, -0.5]], index=[1, 2])
    >>> base = pd.DataFrame([[1.0, 0.0]])
    >>> display = EmbeddingDisplay(
    ...     relevance_embedding=[[-1.0, 0.2], [0.0, 0.1], [1.0, 0.0]],
    ...     observation_embedding=observation,
    ...     base_vectors=base,
    ...     relevance=[0, 1, 2],
    ... ).plot()
    >>> [text.get_text() for text in display.text_]
    ['1', '2']
    """

    _: KW_ONLY
    relevance_embedding: ArrayLike
    observation_embedding: pd.DataFrame
    base_vectors: pd.DataFrame
    relevance: ArrayLike

    @classmethod
    def from_estimator(
        cls,
        estimator: Predictor,
        X: Table,
        *,
        relevance: Column | None = None,
        qid: Column | None = None,
        ax: Axes | None = None,
        cmap: str | Colormap = "viridis",
    ) -> Self:
        """Draw the embeddings of a fitted ranker.

        Parameters
        ----------
        estimator : fitted ranker with embeddings
            A :class:`~skultr.VectorizationRanker`, a pipeline that ends in one, or a search over
            one.
        X : DataFrame, array-like or sparse matrix of shape (n_documents, n_columns)
            The candidates of some queries.
        relevance : array-like of shape (n_documents,), default=None
            Grades; by default the column ``relevance`` of X.
        qid : array-like of shape (n_documents,), default=None
            Query ids; by default the column ``qid`` of X.
        {ax}
        cmap : str or matplotlib colormap, default="viridis"
            As in :meth:`plot`.

        {display}

        Raises
        ------
        TypeError
            If the ranker has no embeddings.
        ValueError
            If grades are absent or their number is not that of the documents.
        """
        relevance = _read_grades(X, relevance)
        qid = read_role(X, "qid", qid)
        model, X = _embedding_model(estimator, X)
        observation = model.observation_embedding_
        base = model.base_vectors(X, qid=qid)
        documents, factors, bases = _canonical(
            model.relevance_embedding(X), observation.to_numpy(), base
        )
        return cls(
            relevance_embedding=documents,
            observation_embedding=pd.DataFrame(factors, index=observation.index),
            base_vectors=pd.DataFrame(bases, index=base.index),
            relevance=relevance,
        ).plot(ax, cmap=cmap)

    def plot(self, ax: Axes | None = None, *, cmap: str | Colormap = "viridis") -> Self:
        """Draw the display.

        With one dimension, the vertical axis shows the relevance of the documents, with the bias
        factors below. With three or more dimensions, the first two axes are drawn, and the labels
        say so.

        Parameters
        ----------
        {ax}
        cmap : str or matplotlib colormap, default="viridis"
            Colours of relevance, from low to high.

        {display}
        """
        documents = _first_axes(self.relevance_embedding)
        tips = _first_axes(self.observation_embedding)
        bases = _first_axes(self.base_vectors)
        relevance = np.asarray(self.relevance, dtype=float)
        # The longest arrow reaches near the outermost documents.
        reach = np.quantile(np.linalg.norm(documents, axis=1), 0.98)
        longest = np.linalg.norm(tips, axis=1).max()
        scale = float(0.9 * reach / longest) if reach and longest else 1.0
        tips = scale * tips
        bases = scale * bases
        tails = np.zeros_like(tips)
        is_line = documents.shape[1] == 1
        if is_line:
            # Documents by relevance, and one line per bias factor below them.
            step = (np.ptp(relevance) or 1.0) / 16
            jitter = np.random.default_rng(0).uniform(-step, step, len(relevance))
            rows = relevance.min() - step * np.arange(3, 3 + len(tips))
            documents = np.column_stack([documents, relevance + jitter])
            tails = np.column_stack([tails, rows])
            tips = np.column_stack([tips, rows])
            bases = np.column_stack([bases, np.full(len(bases), rows[-1] - step)])
        # From the back to the front: documents, arrows, base vectors.
        self._open(ax, (6.8, 5.2))
        self.arrow_scale_ = scale
        self._draw_documents(documents, relevance, cmap)
        self._draw_arrows(tails, tips)
        self.base_points_ = self.ax_.scatter(
            *bases.T, s=9, color=TRUTH, alpha=0.5, linewidths=0, zorder=4, label="base vectors"
        )
        self._label_axes(is_line)
        return self

    def _draw_documents(self, documents, relevance, cmap):
        # Few grades have a colour and a mean each; many are a scale.
        grades = np.unique(relevance)
        colors, norm, ticks = _colors(grades, cmap)
        # The best documents are the fewest, and are drawn last so that they are not hidden.
        order = np.argsort(relevance, kind="stable")
        style = {"cmap": colors, "norm": norm, "rasterized": True, "linewidths": 0}
        # Many documents are small points, so that the cloud shows its density.
        size = float(np.clip(900 / np.sqrt(len(order)), 3, 25))
        self.points_ = self.ax_.scatter(
            *documents[order].T, c=relevance[order], s=size, alpha=0.4, zorder=1, **style
        )
        self.means_: PathCollection | None = None
        if len(grades) <= _MAX_GRADES:
            means = pd.DataFrame(documents).groupby(relevance).mean().to_numpy().T
            style = {"cmap": colors, "norm": norm, "edgecolors": "white", "linewidths": 1.5}
            self.means_ = self.ax_.scatter(
                *means, c=grades, s=110, zorder=3, label="mean of a grade", **style
            )
        bar = self.figure_.colorbar(self.points_, ax=self.ax_, ticks=ticks, label="relevance")
        # Colours of the bar are those of the means, without the transparency of points.
        bar.solids.set(alpha=1)

    def _draw_arrows(self, tails, tips):
        names = self.observation_embedding.index
        style = {
            "arrowstyle": "->",
            "color": _ARROWS,
            "linewidth": 1.5,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        arrows = [*zip(names, tails, tips, strict=True)]
        self.arrows_ = {
            name: self.ax_.annotate("", tip, tail, arrowprops=style, zorder=5)
            for name, tail, tip in arrows
        }
        # matplotlib ignores annotations for the limits of the axes and for the legend.
        self.ax_.update_datalim(np.vstack([tails, tips]))
        self.ax_.plot([], [], color=_ARROWS, label=f"observation × {self.arrow_scale_:.2g}")
        # Of more than 20 names, none could be found.
        self.text_ = []
        if len(names) <= 20:
            write = self._name_lines if tails.any() else self._name_directions
            write([factor_text(name) for name in names], tips)

    def _name_lines(self, names, tips):
        """Names beyond the tips of arrows that lie below each other."""
        for name, tip in zip(names, tips, strict=True):
            side = -1 if tip[0] < 0 else 1
            style = {"ha": "left" if side > 0 else "right", "textcoords": "offset points"}
            self._write_name(name, tip, xytext=(5 * side, 0), **style)

    def _name_directions(self, names, tips):
        """Names around all arrows, apart from each other, each with a thin line to its tip."""
        length = np.linalg.norm(tips, axis=1)
        per_point = self._data_per_point()
        radius = length.max() + _NAME_AWAY * per_point
        longest = max(map(len, names))
        # Short names stand upright, and beside each other need their width.
        is_short = longest <= 3
        width = 0.75 * _NAME_SIZE * longest if is_short else 0.0
        room = max(_NAME_ROOM, width) * per_point
        angles = _apart(np.arctan2(tips[:, 1], tips[:, 0]), room / radius)
        places = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        # matplotlib ignores names, too, for the limits of the axes.
        self.ax_.update_datalim(1.05 * places)
        line = {"color": _ARROWS, "linewidth": 0.6, "alpha": 0.6, "zorder": 4}
        for name, tip, angle, place in zip(names, tips, angles, places, strict=True):
            self.ax_.plot(*zip(tip, place, strict=True), **line)
            self._write_name(name, place, **({"ha": "center"} if is_short else outwards(angle)))

    def _data_per_point(self):
        """Units of the data in a point of the page, before the layout and so about."""
        low, high = self.ax_.dataLim.get_points()
        # Titles, labels and the bar of colours take a fifth.
        return float(max((high - low) / (0.8 * 72 * self._inches())))

    def _write_name(self, name, place, **style):
        """The name of a bias factor, outlined in white to stay readable."""
        from matplotlib.patheffects import withStroke

        style |= {"va": "center", "fontsize": _NAME_SIZE, "fontweight": "bold", "zorder": 6}
        style["path_effects"] = [withStroke(linewidth=2.5, foreground="white")]
        self.text_.append(self.ax_.annotate(name, place, color=_ARROWS, **style))

    def _label_axes(self, is_line):
        n_axes = np.shape(self.relevance_embedding)[1]
        self.ax_.set_xlabel("along the mean base vector: further right is ranked higher")
        if is_line:
            self.ax_.set(yticks=[], ylabel="documents by relevance, above the bias factors")
        else:
            # How much of what is across the first axis the plot shows.
            spread = np.var(self.relevance_embedding, axis=0)[1:]
            share = f"({spread[0] / (spread.sum() or 1.0):.0%} of their spread)"
            more = f",\nfirst of {n_axes - 1} principal axes {share}" if n_axes > 2 else ""
            self.ax_.set_ylabel(f"across the mean base vector{more}")
            self.ax_.set_aspect("equal", adjustable="datalim")
        self.ax_.autoscale_view()
        self._write_title("Documents as the ranker sees them")
        self._write_legend()

    def _write_legend(self):
        """The legend below the label of the axis, where it lies on no document."""
        from matplotlib.transforms import ScaledTranslation

        inch = self.figure_.dpi_scale_trans
        below = self.ax_.transAxes + ScaledTranslation(0, -_BELOW_LABEL, inch)
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "bbox_transform": below}
        n_columns = 3 if self._inches()[0] > _ONE_LINE else 1
        self.ax_.legend(frameon=False, fontsize=8, ncols=n_columns, **place)


def _first_axes(vectors):
    """The axes that are drawn."""
    return np.asarray(vectors, dtype=float)[:, :2]


def _apart(angles, room):
    """The nearest angles, by least squares, of which each is ``room`` from the next."""
    n_angles = len(angles)
    order = np.argsort(angles)
    angle = angles[order]
    # The circle is cut open where it is emptiest.
    gaps = np.diff(angle, append=angle[0] + 2 * np.pi)
    cut = int(np.argmax(gaps)) + 1
    order = np.roll(order, -cut)
    angle = np.unwrap(angles[order])
    # More names than fit around the circle share it.
    steps = min(room, 2 * np.pi / n_angles) * np.arange(n_angles)
    apart = np.empty(n_angles)
    apart[order] = isotonic_regression(angle - steps).x + steps
    return apart


def _colors(grades, cmap):
    """Colour map, norm and ticks; few grades have one colour each."""
    from matplotlib.colors import Normalize, from_levels_and_colors

    if not 1 < len(grades) <= _MAX_GRADES:
        return cmap, Normalize(grades[0], grades[-1]), None
    # Bounds half-way between grades.
    middle = (grades[1:] + grades[:-1]) / 2
    bounds = [2 * grades[0] - middle[0], *middle, 2 * grades[-1] - middle[-1]]
    return (*from_levels_and_colors(bounds, shades(cmap, len(grades), 1.0)), grades)


def _canonical(documents, factors, bases):
    """The embeddings in the coordinates of the class's Notes, with the same products."""
    documents = np.asarray(documents, dtype=float)
    bases = np.asarray(bases, dtype=float)
    # Only products matter: factors get equal lengths along all axes.
    left, size, right = np.linalg.svd(factors, full_matrices=False)
    # Directions of a tiny share of the largest are noise, by which bases would be divided.
    kept = size > 1e-5 * size[0]
    size = size[kept] / np.sqrt(len(factors))
    right = right[kept]
    factors = left[:, kept] * np.sqrt(len(factors))
    # The mean document is the origin: only differences within a list affect clicks.
    documents = (documents - documents.mean(axis=0)) @ right.T * size
    bases = bases @ right.T / size
    # Then the first axis along the mean base vector.
    turn = _rotation(documents, bases.mean(axis=0))
    factors = factors @ turn
    bases = bases @ turn
    documents = documents @ turn
    # The first bias factor points up, which fixes the sign of every axis.
    upright = np.where(factors[0] < 0, -1.0, 1.0)
    upright[0] = 1.0
    return documents * upright, factors * upright, bases * upright


def _rotation(documents, first):
    """Orthonormal columns: ``first``, then the principal axes of its orthogonal complement."""
    # The SVD of one row: its direction, up to the sign, and a basis of the complement.
    sign, _, basis = np.linalg.svd(first[None])
    across = basis[1:]
    moments = across @ documents.T @ documents @ across.T
    _, principal = np.linalg.eigh(moments)
    longest_first = principal[:, ::-1]
    return np.column_stack([sign[0] * basis[0], across.T @ longest_first])


def _read_grades(X, relevance):
    relevance = read_role(X, "relevance", relevance)
    if relevance is None:
        raise ValueError(
            "Documents are coloured by relevance, but X has no column 'relevance' and no "
            "relevance= was passed. Pass one grade per row of X."
        )
    missing = int(np.isnan(relevance).sum())
    if missing:
        raise ValueError(
            f"relevance is missing in {missing} of {len(relevance)} rows. Leave these rows out."
        )
    return relevance


def _embedding_model(estimator, X):
    """The fitted model inside searches and pipelines, and its input."""
    # Steps before the model transform X.
    model, X = model_and_input(estimator, X)
    if not (hasattr(model, "relevance_embedding") and hasattr(model, "base_vectors")):
        raise TypeError(
            f"{type(model).__name__} has no embeddings; expected a fitted ranker with "
            "relevance_embedding(X), base_vectors(X) and observation_embedding_, such as "
            "VectorizationRanker."
        )
    check_is_fitted(model)
    return model, X


# Debiasedness -------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class DebiasednessDisplay(Display):
    """Plot of model scores against the logged positions of the documents, by grade.

    If a model is debiased, the cloud of each grade is flat: among documents of equal relevance,
    the score does not depend on their place in the logged ranking. Falling lines, or a large CMIP
    in the title, show scores that copy the old ranking. The title says whether they do: hardly
    below 0.1 nats, in part below 0.2, else fully. Create it with :meth:`from_estimator` or
    :meth:`from_predictions`.

    Parameters
    ----------
    documents : DataFrame
        One row per document: ``score``, ``logged`` and ``grade``.
    cmip : float
        Conditional mutual information of ``score`` and ``logged`` given ``grade``.

    {attributes}
    points_ : dict of grade to matplotlib.collections.PathCollection
        The documents of each grade.
    lines_ : dict of grade to matplotlib.lines.Line2D
        Mean score against logged position, for each grade with at least 20 documents.

    See Also
    --------
    skultr.metrics.cmip_score : CMIP, with standard error and p-value.
    skultr.metrics.CMIPScorer : CMIP as a scorer, for searches.

    Notes
    -----
    Flat clouds do not imply a good model: random scores have them too. Check nDCG as well.

    References
    ----------
    Deffayet, Hager, Renders and de Rijke (2023). An offline metric for the debiasedness of click
    models. SIGIR. Figure 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.plotting import DebiasednessDisplay
    >>> rng = np.random.default_rng(0)
    >>> grade, logged = rng.integers(0, 3, 600), rng.uniform(1, 10, 600)
    >>> display = DebiasednessDisplay.from_predictions(
    ...     grade - logged, logged, grade, cmip_estimator="knn"
    ... )
    >>> display.cmip > 1
    True
    """

    documents: pd.DataFrame
    _: KW_ONLY
    cmip: float

    @classmethod
    def from_estimator(
        cls,
        estimator: Predictor,
        X: Frame,
        *,
        logging: str | None = None,
        cmip_estimator: CMIPEstimator = "classifier",
        random_state: RandomState = 0,
        ax: Axes | None = None,
        **plot_params: Any,
    ) -> Self:
        """Draw the scores of a fitted ranker or click model for the documents of a log.

        Parameters
        ----------
        estimator : fitted ranker or click model
            With a method ``predict(X)`` that returns one score per row.
        X : frame of shape (n_rows, n_columns)
            A click log with the roles ``qid``, ``position`` and ``relevance``, which may be
            missing in some rows. Each annotated document (``doc``, or equal features in a query)
            is drawn once, at its mean position, as for :class:`~skultr.metrics.CMIPScorer`. The
            mean is weighted by the ``impressions`` of its rows. Documents never shown are left
            out.
        logging : str, default=None
            Column of X with the score of the document by the logging policy, instead of its
            position.
        cmip_estimator : {"classifier", "knn", "published"}, default="classifier"
            The ``estimator`` of :func:`skultr.metrics.cmip_score`.
        random_state : int, RandomState instance or None, default=0
            Seed of the estimate of CMIP.
        {ax}
        {plot_params}

        {display}

        Raises
        ------
        ValueError
            If X lacks a role or the column, if no shown document is annotated, or if no two
            documents share a grade.
        """
        # The axis has the name of the column, unless the user gives another.
        if logging is not None:
            plot_params.setdefault("logging_name", logging)
        return cls.from_predictions(
            *annotated_documents(cls.__name__, estimator, X, logging=logging),
            cmip_estimator=cmip_estimator,
            random_state=random_state,
            ax=ax,
            **plot_params,
        )

    @classmethod
    def from_predictions(
        cls,
        y_pred: Column,
        y_logging: Column,
        y_true: Column,
        *,
        cmip_estimator: CMIPEstimator = "classifier",
        random_state: RandomState = 0,
        ax: Axes | None = None,
        **plot_params: Any,
    ) -> Self:
        """Draw scores of documents.

        Parameters
        ----------
        y_pred : array-like of shape (n_documents,)
            Scores of the model.
        y_logging : array-like of shape (n_documents,)
            Mean logged position of each document, or a score of the logging policy.
        y_true : array-like of shape (n_documents,)
            Grades of relevance.
        cmip_estimator, random_state
            As in :meth:`from_estimator`.
        {ax}
        {plot_params}

        {display}

        Raises
        ------
        ValueError
            For the same reasons as :func:`skultr.metrics.cmip_score`.
        """
        cmip = cmip_score(
            y_pred, y_logging, y_true, estimator=cmip_estimator, random_state=random_state
        )
        documents = pd.DataFrame(
            {
                "score": np.asarray(y_pred),
                "logged": np.asarray(y_logging),
                "grade": np.asarray(y_true),
            }
        )
        return cls(documents, cmip=cmip).plot(ax, **plot_params)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        name: str | None = None,
        logging_name: str = _LOGGED,
        cmap: str | Colormap = "viridis",
        s: float = 9,
        alpha: float = 0.35,
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        {ax}
        name : str, default=None
            Name of the model, for the title; by default "the model".
        logging_name : str, default="mean logged position"
            Label of the horizontal axis.
        cmap : str or matplotlib colormap, default="viridis"
            Colours of the grades.
        s, alpha : float
            Size and opacity of the documents.

        {display}
        """
        from matplotlib.ticker import MaxNLocator

        self._open(ax, (6.0, 4.2))
        by_grade = self.documents.groupby("grade")[["logged", "score"]]
        self.points_: dict[Any, PathCollection] = {}
        self.lines_: dict[Any, Line2D] = {}
        # The best grade is drawn last, on top.
        for (grade, rows), color in zip(by_grade, shades(cmap, len(by_grade), 0.9), strict=True):
            x, y = rows.to_numpy().T
            self.points_[grade] = self.ax_.scatter(x, y, s, [color], alpha=alpha, linewidths=0)
            # Means over ten or more documents of similar position; a line has 2 to 8 of them.
            n_points = min(8, len(x) // 10)
            if n_points >= 2:
                order = np.argsort(x, kind="stable")
                groups = np.array_split(order, n_points)
                mean_x = [x[group].mean() for group in groups]
                mean_y = [y[group].mean() for group in groups]
                (self.lines_[grade],) = self.ax_.plot(
                    mean_x, mean_y, color=color, lw=2.2, label=f"grade {grade:g}"
                )
        self.ax_.set(xlabel=logging_name, ylabel="score of the model")
        if logging_name == _LOGGED:
            self.ax_.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        self._write_verdict(name or "the model")
        if self.lines_:
            # Outside, where it lies on no document.
            outside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
            self.ax_.legend(frameon=False, fontsize="small", **outside)
        return self

    def _write_verdict(self, name):
        """Whether the model copies the old ranking, in the colour of the answer, and the scale."""
        good, fair, bad = _VERDICTS
        is_large = self.cmip >= COPIES.value
        is_small = self.cmip < HARDLY_COPIES.value
        verdict = bad if is_large else good if is_small else fair
        # Estimates below 0 are noise, and -0.00 is no number that a reader knows.
        value = f"{self.cmip:.2f}".replace("-0.00", "0.00")
        scale = f"CMIP = {value} (0 is best, bad from {COPIES.value:g})"
        self._write_title(f"{name} {verdict}\n{scale}", color=_VERDICTS[verdict], fontsize=11)
