"""The identifiability graph: does a click log determine relevance, and how precisely?"""

from __future__ import annotations

from functools import cached_property
from html import escape
from math import comb
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from .._base._progress import progress
from .._base._typing import AnyFrame, ArrayLike, Column, Floats, Ints, RandomState, Simulated
from .._log._cells import bipartite_components, factor_components
from .._log._clicklog import ClickLog
from .._log._dataset import ClickDataset
from .._log._pairs import Pairs, pairs_from_arrays, read_pairs
from ..exceptions import NotIdentifiableWarning, warn_user
from ._bias_features import MAX_NAMED, factor_labels, name_some
from ._bridges import articulation_documents, members_of, weak_links
from ._overlap import FeatureOverlap, information_of_log
from ._plans import merged_codes
from ._thresholds import ENOUGH_OVERLAP, MOST_FACTORS, MOST_PAIRS, NOTABLE, WEAK


class IdentifiabilityGraph:
    """Graph of bias factors, such as positions; two are linked if a document had both.

    If P(click) = relevance(document) * examination(bias factor), a click log determines the
    relevance of its documents up to one scale exactly if this graph is connected [1]_. If it
    has several components, each has its own scale: documents of different components cannot be
    compared, however many clicks there are.

    Parameters
    ----------
    doc : array-like of shape (n_rows,)
        Document of each shown row; any hashable ids. Rows may recur.
    bias : array-like of shape (n_rows,) or (n_rows, n_columns)
        Bias factor of each row, such as its position. With several columns, a factor is a
        combination of their values.
    impressions : array-like of shape (n_rows,), default=None
        Number of impressions of each row, at least 0 (0: never shown); by default 1.
    clicks : array-like of shape (n_rows,), default=None
        Number of clicks of each row, between 0 and its impressions, or its click rate; None if
        unknown.

    Attributes
    ----------
    n_factors : int
        Number of bias factors.
    n_documents : int
        Number of documents that were shown.
    n_pairs : int
        Number of distinct (document, factor) pairs.
    n_components : int
        Number of components.
    is_connected : bool
        True if there is one component, so that relevance is identifiable.
    labels : ndarray of shape (n_factors,)
        Component of each factor, numbered by descending impressions: 0 has the most.
    document_labels : ndarray of shape (n_documents,)
        Component of each document.
    factors : pandas.DataFrame of shape (n_factors, n_columns)
        Values of each factor, sorted.
    components : pandas.DataFrame of shape (n_components, 6)
        ``n_factors``, ``n_documents``, ``impressions``, ``impressions_share``, ``clicks_share``
        (NaN if clicks are unknown) and ``examples``, up to three factors as text.
    pairs : Pairs
        The distinct pairs: arrays ``doc``, ``factor``, ``impressions``, ``clicks``, and the
        index ``doc_ids``.

    See Also
    --------
    IdentifiabilityRepair : Merges factors, or plans swaps, so that the graph is connected.

    References
    ----------
    .. [1] "Identifiability Matters: Revealing the Hidden Recoverable Condition in Unbiased
       Learning to Rank", ICML 2024, Theorem 1.

    Examples
    --------
    Document a was shown at positions 1 and 2, b at 2 only, and c at 3 only:

    >>> from skultr.identifiability import IdentifiabilityGraph
    >>> graph = IdentifiabilityGraph(doc=["a", "a", "b", "c"], bias=[1, 2, 2, 3])
    >>> graph.is_connected, graph.n_components
    (False, 2)
    >>> graph.labels
    array([0, 0, 1])
    """

    def __init__(
        self,
        doc: Column,
        bias: Column | pd.DataFrame,
        *,
        impressions: ArrayLike | None = None,
        clicks: ArrayLike | None = None,
    ) -> None:
        self._set_pairs(pairs_from_arrays(doc, bias, impressions, clicks))

    @classmethod
    def from_log(
        cls,
        X: AnyFrame | Simulated | ClickDataset,
        *,
        bias: str | list[str] | tuple[str, ...] | None = None,
        click: str | ArrayLike = "click",
    ) -> IdentifiabilityGraph:
        """Build the graph of a click log; a frame of an engine is counted in that engine.

        Parameters
        ----------
        X : frame, SimulatedLog or ClickDataset
            A frame of any kind that Narwhals reads (pandas, Polars, PyArrow, DuckDB, Dask,
            PySpark, ...), in memory or lazy: the engine counts, and only the distinct pairs are
            collected. The columns ``qid``, ``doc``, ``position``, ``impressions``, ``doc_scope``
            and those of ``bias`` and ``click`` are read.

            - A document is the pair of ``qid`` and ``doc``: the same id under another query is
              another document, unless the column ``doc_scope`` holds "global" in every row.
            - In a frame in memory without ``doc``, rows with equal features are one document.
            - Rows without a position, or with 0 ``impressions``, were never shown.
        bias : str or list of str, default=None
            Columns whose values together are the bias factor; by default ``bias`` if there is
            one, else ``position``.
        click : str or array-like of shape (n_rows,), default="click"
            Name of the column of clicks, or clicks in memory, as the ``y`` of ``fit``: numbers
            of clicks, or click rates, where rows have several ``impressions``. If X has no column
            ``click``, clicks are unknown: only :meth:`weak_links` and the shares of clicks need
            them.

        Returns
        -------
        graph : IdentifiabilityGraph

        Raises
        ------
        TypeError
            X is no log.
        ValueError
            A column is missing, an id or factor of a shown row is missing, clicks or
            impressions are out of range, or nothing was shown.

        Examples
        --------
        >>> import pandas as pd
        >>> from skultr.identifiability import IdentifiabilityGraph
        >>> log = pd.DataFrame({
        ...     "qid": 1,
        ...     "doc": ["a", "b", "b", "a"],
        ...     "position": [1, 2, 1, 2],
        ...     "device": ["phone", "phone", "desktop", "desktop"],
        ... })
        >>> IdentifiabilityGraph.from_log(log)
        IdentifiabilityGraph(n_factors=2, n_documents=2, n_components=1)
        >>> IdentifiabilityGraph.from_log(log, bias=["position", "device"])
        IdentifiabilityGraph(n_factors=4, n_documents=2, n_components=2)
        """
        return cls._from_pairs(read_pairs(X, bias=bias, click=click))

    @classmethod
    def _from_pairs(cls, pairs: Pairs) -> IdentifiabilityGraph:
        graph = cls.__new__(cls)
        graph._set_pairs(pairs)
        return graph

    def _set_pairs(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self.factors = pairs.factors
        self.n_factors = pairs.n_factors
        self.n_documents = pairs.n_docs
        self.n_pairs = len(pairs.doc)
        # Documents and factors are the two sides of one graph.
        doc_component, factor_component = bipartite_components(
            pairs.doc, pairs.factor, self.n_documents, self.n_factors
        )
        impressions = np.bincount(factor_component[pairs.factor], pairs.impressions)
        self.n_components = len(impressions)
        self.is_connected = self.n_components == 1
        # Components are numbered by their impressions; the first factor decides between equals.
        _, first = np.unique(factor_component, return_index=True)
        order = np.lexsort((first, -impressions))
        number = np.argsort(order)
        self.labels = number[factor_component]
        self.document_labels = number[doc_component]

    @cached_property
    def components(self) -> pd.DataFrame:
        """Table of the components: factors, documents, shares of impressions and clicks."""
        pairs = self.pairs
        size = self.n_components
        pair_component = self.labels[pairs.factor]
        impressions = np.bincount(pair_component, pairs.impressions, size)
        # Unknown without clicks.
        clicks_share = np.nan
        if pairs.clicks is not None and pairs.clicks.any():
            clicks_share = np.bincount(pair_component, pairs.clicks, size) / pairs.clicks.sum()
        return pd.DataFrame(
            {
                "n_factors": np.bincount(self.labels),
                "n_documents": np.bincount(self.document_labels, minlength=size),
                "impressions": impressions,
                "impressions_share": impressions / impressions.sum(),
                "clicks_share": clicks_share,
                "examples": self._examples(),
            },
            index=pd.RangeIndex(size, name="component"),
        )

    def bridges(self) -> pd.DataFrame:
        """Table of the documents without which the graph would have more components.

        Identifiability depends on each of these documents alone, and on the features or the id
        by which its rows count as one document.

        Returns
        -------
        bridges : pandas.DataFrame of shape (n_bridges, n_columns)
            ``qid`` and ``doc`` (``doc`` alone where ids are global or the graph is of arrays;
            ``row``, the first row of the log with its features, where documents have no ids),
            ``n_parts`` (number of parts into which its component would fall), ``impressions`` and
            ``clicks`` (NaN if unknown) of the document; sorted by ascending clicks.

        Notes
        -----
        The result is exact, from biconnected components. The time is about linear in the number
        of distinct pairs.

        Examples
        --------
        >>> from skultr.identifiability import IdentifiabilityGraph
        >>> graph = IdentifiabilityGraph(list("aabbcc"), [1, 2, 1, 2, 2, 3])
        >>> graph.bridges()
          doc  n_parts  impressions  clicks
        0   c        2          2.0     NaN
        """
        pairs = self.pairs
        documents, n_parts = articulation_documents(pairs.doc, pairs.factor, self.labels)
        impressions = np.bincount(pairs.doc, pairs.impressions)[documents]
        # Unknown without clicks.
        clicks = np.nan
        if pairs.clicks is not None:
            clicks = np.bincount(pairs.doc, pairs.clicks)[documents]
        table = pairs.name_documents(documents).assign(
            n_parts=n_parts,
            impressions=impressions,
            clicks=clicks,
        )
        return table.sort_values(["clicks", "impressions"], kind="stable", ignore_index=True)

    def connection_probability(self, n_samples: ArrayLike | None = None) -> float | Floats:
        r"""Probability that a random log with as many documents and factors is connected.

        With each impression drawn uniformly over all pairs of a document and a factor, two
        factors share no document with probability

        .. math:: f = [1 - (1 - e^{-|D| / (|X| |T|)})^2]^{|X|}

        As if pairs of factors were independent, the graph is connected with probability
        :math:`P_{|T|}` [2]_,

        .. math:: P_n = 1 - \sum_{k=1}^{n-1} \binom{n-1}{k-1} P_k f^{k (n-k)}, \quad P_1 = 1,

        and above 30 factors with its limit :math:`\exp(-|T| f^{|T| - 1})`, where this is off by
        at most 0.013. The formula of [1]_ for many factors, :math:`1 - |T| f^{|T| - 1}`, is the
        first term of both. This is what to expect of a log of this size, not whether this log is
        connected: rankings are far from uniform.

        Parameters
        ----------
        n_samples : float or array-like, default=None
            Number of impressions :math:`|D|`; by default those of this log.

        Returns
        -------
        probability : float or ndarray
            Between 0 and 1, in the shape of ``n_samples``.

        References
        ----------
        .. [1] M. Chen et al., "Identifiability Matters", ICML 2024, Example 2.
        .. [2] E. N. Gilbert, "Random graphs", Annals of Mathematical Statistics 30 (1959).

        Examples
        --------
        >>> from skultr.identifiability import IdentifiabilityGraph
        >>> graph = IdentifiabilityGraph(doc=[0, 0, 1, 2], bias=[1, 2, 2, 3])
        >>> graph.connection_probability([5, 10, 50]).round(2)
        array([0.43, 0.93, 1.  ])
        """
        if n_samples is None:
            n_samples = self.pairs.impressions.sum()
        n_samples = np.asarray(n_samples, dtype=float)
        if not (n_samples >= 0).all():
            raise ValueError(f"n_samples must be numbers of at least 0, got {n_samples}.")
        # P(a pair of a document and a factor is drawn).
        drawn = -np.expm1(-n_samples / (self.n_documents * self.n_factors))
        with np.errstate(divide="ignore"):  # all pairs may be drawn for certain
            log_apart = self.n_documents * np.log1p(-(drawn**2))
        return random_graph_connected(self.n_factors, log_apart)[()]

    def subsample_connectivity(
        self, fractions: ArrayLike, n_repeats: int = 20, *, random_state: RandomState = None
    ) -> pd.DataFrame:
        """Share of random subsamples of the log that are connected, by fraction of impressions.

        Parameters
        ----------
        fractions : array-like of shape (n_fractions,)
            Each impression is kept with this probability, in (0, 1].
        n_repeats : int, default=20
            Number of samples. Within a sample, a larger fraction keeps every impression that a
            smaller one keeps.
        random_state : int, RandomState instance or None, default=None
            Pass an int for the same samples again.

        Returns
        -------
        connectivity : pandas.DataFrame of shape (n_fractions, 4)
            ``fraction``, ``connected`` (share of samples whose graph is connected),
            ``standard_error`` of it, and ``n_components`` (mean).

        Notes
        -----
        A factor of the log without an impression in a sample is a component of its own: the
        sample does not determine its examination.

        Examples
        --------
        >>> import numpy as np
        >>> from skultr.identifiability import IdentifiabilityGraph
        >>> doc, position = np.repeat(np.arange(5), 10), np.tile([1, 2], 25)
        >>> graph = IdentifiabilityGraph(doc, position)
        >>> table = graph.subsample_connectivity([0.05, 0.5, 1.0], random_state=0)
        >>> table["connected"].tolist()
        [0.15, 1.0, 1.0]
        """
        fractions = np.atleast_1d(np.asarray(fractions, dtype=float))
        if fractions.ndim != 1 or not ((fractions > 0) & (fractions <= 1)).all():
            raise ValueError(f"fractions must lie in (0, 1], got {fractions}.")
        if not isinstance(n_repeats, Integral) or n_repeats < 1:
            raise ValueError(f"n_repeats must be a whole number from 1, got {n_repeats!r}.")
        rng = check_random_state(random_state)
        pairs = self.pairs
        # One draw per repeat serves all fractions: samples are nested.
        counts = np.empty((n_repeats, len(fractions)), dtype=np.intp)
        for repeat in progress(range(n_repeats), "subsample"):
            # A pair of n impressions is lost with probability (1 - fraction)^n; the fraction at
            # which it appears has this distribution.
            survival = np.log(rng.uniform(size=self.n_pairs))
            appears = -np.expm1(survival / pairs.impressions)
            for column, fraction in enumerate(fractions):
                rows = (appears <= fraction) | (fraction == 1)
                n_components, _ = factor_components(
                    pairs.doc[rows], pairs.factor[rows], self.n_factors
                )
                counts[repeat, column] = n_components
        connected = (counts == 1).mean(axis=0)
        return pd.DataFrame(
            {
                "fraction": fractions,
                "connected": connected,
                "standard_error": np.sqrt(connected * (1 - connected) / n_repeats),
                "n_components": counts.mean(axis=0),
            }
        )

    def weak_links(self, n_links: int | None = None) -> pd.DataFrame:
        r"""Links of bias factors with standard errors of log examination ratios, weakest first.

        If each document has its own relevance and each factor its own examination, no unbiased
        estimate of log(o_a / o_b), the log ratio of the examinations of factors a and b, has a
        standard error below

        .. math:: \sqrt{R_{ab}},

        where R is the effective resistance in the network of documents and factors. The
        conductance of a pair is the Fisher information of its clicks about its log click rate
        (see Notes). The links are the minimum spanning tree of the factors under R: two factors on
        different sides of a link cannot be compared with a smaller standard error than that of
        the link.

        Parameters
        ----------
        n_links : int, default=None
            Number of links; by default all, one fewer than there are factors.

        Returns
        -------
        links : pandas.DataFrame of shape (n_links, 5)
            ``factor_a`` and ``factor_b`` (values, or tuples where factors have several columns),
            ``standard_error`` of the log ratio of their examinations (infinite where no click
            links them), ``margin_95`` = exp(1.96 ``standard_error``) (with 95 % confidence the
            ratio lies between the estimate divided by this margin and multiplied by it) and
            ``n_factors``, the number of factors on the smaller side when links are added strongest
            first.

        Raises
        ------
        ValueError
            Clicks link more than 2000 factors to one component.

        Notes
        -----
        *Bound.* The Fisher information of c clicks in n impressions about the log click rate is
        c / (1 - c / n). The conductance is c n / (n - c + 1), which is finite and slightly
        smaller, with observed clicks in place of expected ones. Pairs without a click carry no
        information: a log that is connected only through such pairs has infinite standard errors.
        A model in which documents share parameters through features can be more precise.

        *Unknown clicks.* Impressions are used instead, as if every impression were clicked: the
        true standard errors are larger.

        Examples
        --------
        Positions 1 and 2 share a document with 100 clicks at each, 2 and 3 one with 4 at each:

        >>> from skultr.identifiability import IdentifiabilityGraph
        >>> graph = IdentifiabilityGraph(
        ...     ["a", "a", "b", "b"], [1, 2, 2, 3],
        ...     impressions=[1000, 1000, 20, 20], clicks=[100, 100, 4, 4],
        ... )
        >>> graph.weak_links().round(2)
           factor_a  factor_b  standard_error  margin_95  n_factors
        0         2         3            0.65       3.59          1
        1         1         2            0.13       1.30          1
        """
        if n_links is not None and (not isinstance(n_links, Integral) or n_links < 0):
            raise ValueError(f"n_links must be a whole number from 0 or None, got {n_links!r}.")
        a, b, variance, n_smaller = self._links()
        rows = slice(None, n_links)
        # Names for codes; the margin of an unknown ratio is infinite.
        names = self._factor_names()
        error = np.sqrt(variance[rows])
        with np.errstate(over="ignore"):
            margin_95 = np.exp(1.96 * error)
        return pd.DataFrame(
            {
                "factor_a": names.take(a[rows]).to_numpy(),
                "factor_b": names.take(b[rows]).to_numpy(),
                "standard_error": error,
                "margin_95": margin_95,
                "n_factors": n_smaller[rows],
            }
        )

    def _links(self):
        pairs = self.pairs
        n = pairs.impressions
        conductance = n
        if pairs.clicks is not None:
            conductance = pairs.clicks * n / (n - pairs.clicks + 1.0)
        return weak_links(pairs.doc, pairs.factor, conductance, self.n_factors)

    def summary(self, overlap: FeatureOverlap | None = None) -> str:
        """The verdict in plain words, and what to do.

        Parameters
        ----------
        overlap : FeatureOverlap, default=None
            Result of :func:`feature_overlap` on the same log: the summary of a graph that is not
            connected then says whether features separate its components. The graph keeps no
            features itself.

        Returns
        -------
        summary : str
            Whether the log identifies relevance, then the components, the bridges and weak
            links, and the remedy. Graphs of more than a million pairs are not searched for
            bridges and weak links: see :meth:`bridges` and :meth:`weak_links`.

        Examples
        --------
        >>> from skultr.identifiability import IdentifiabilityGraph
        >>> print(IdentifiabilityGraph(["a", "a", "b", "b"], [1, 2, 3, 4]).summary())
        NOT identifiable: 4 bias factors fall into 2 components.
        Relevance can be compared within a component only, however many clicks there are.
          component 0: 2 factors (1, 2), 1 document, 50.0 % of impressions
          component 1: 2 factors (3, 4), 1 document, 50.0 % of impressions
        To do: IdentifiabilityRepair(strategy="merge") lets the most similar factors of different
          components share one examination; strategy="intervene" plans 1 swap to serve instead.
        """
        return "\n".join(summary_lines(self, overlap))

    def __repr__(self) -> str:
        return (
            f"IdentifiabilityGraph(n_factors={self.n_factors}, n_documents={self.n_documents}, "
            f"n_components={self.n_components})"
        )

    def _repr_html_(self):
        return summary_html(self)

    # Names of factors ---------------------------------------------------
    def _factor_names(self):
        """Name of each factor, by code: its value, or a tuple of values in several columns."""
        return pd.Series(factor_labels(self.factors, np.arange(self.n_factors)))

    def _examples(self):
        """Names of the first factors of each component, as text."""
        names = self._factor_names()
        examples = []
        for factors in members_of(self.labels).values():
            some = names.take(factors[:MAX_NAMED])
            examples.append(name_some(some, len(factors)))
        return examples


def warn_unless_identifiable(log: ClickLog, network: bool) -> None:
    """Warn if the documents of a log do not connect its bias factors."""
    # Of all documents, clicked or not: what the log could determine.
    labels = log.cells.component_of_factors
    n_factors = len(log.bias_values)
    n_components = int(labels.max(initial=-1)) + 1
    if n_components == 1:
        return
    if network:
        consequence = (
            "What connects them is only the network, which gives similar features similar "
            f"relevance; the log cannot confirm this. {_overlap_text(log, labels)}"
        )
    else:
        consequence = (
            "The relevance of documents in different components cannot be compared: it depends "
            "only on where training starts, or on a prior."
        )
    warn_user(
        f"The log does not determine relevance: its {n_factors} bias factors fall into "
        f"{n_components} components, and no document was shown in two of them. {consequence} "
        "See IdentifiabilityGraph.from_log(X).summary() in skultr.identifiability; repair the log "
        "with IdentifiabilityRepair, or filter NotIdentifiableWarning if you accept this.",
        NotIdentifiableWarning,
    )


def _overlap_text(log: ClickLog, labels: Ints) -> str:
    """Whether features can connect the components, as a sentence of a warning."""
    # Computed only here, where no document connects the components.
    information = information_of_log(log)
    groups = labels[information.factors]
    overlap = information.least(groups)
    # Without pages that show both, nothing is left to measure.
    if not information.compares(groups):
        return "Features cannot do so either: no result page compares all components."
    components_text = (
        f"overlap between the components ({overlap:.2f}; 1: they do not depend on the bias "
        "factor, 0: they determine it), so that the network"
    )
    if overlap >= ENOUGH_OVERLAP.value:
        return (
            f"Features {components_text} can do so, if the production ranker used no signal that "
            "they lack."
        )
    return (
        f"Features do NOT {components_text} cannot do so: what it calls examination may be "
        "relevance. See feature_overlap in skultr.identifiability."
    )


#: Largest number of components that are listed.
_MAX_LISTED = 6


def summary_lines(graph: Any, overlap: Any = None) -> list[str]:
    """The lines of ``IdentifiabilityGraph.summary``."""
    # Not connected: what the parts are, and what to do.
    factors = _count(graph.n_factors, "bias factor")
    if not graph.is_connected:
        swaps = _count(graph.n_components - 1, "swap")
        return [
            f"NOT identifiable: {factors} fall into {graph.n_components:,} components.",
            "Relevance can be compared within a component only, however many clicks there are.",
            *_components(graph),
            *_features(graph, overlap),
            'To do: IdentifiabilityRepair(strategy="merge") lets the most similar factors of '
            "different",
            f'  components share one examination; strategy="intervene" plans {swaps} to serve '
            "instead.",
        ]
    if graph.n_factors == 1:
        return ["Identifiable: there is one bias factor, so click rates compare documents fairly."]
    # Connected: but is it so by few documents, or few clicks?
    weak = _weak_part(graph)
    verdict = (
        f"Identifiable: {factors} form one component, so that clicks determine the relevance of "
        f"all {_count(graph.n_documents, 'document')} up to one scale."
    )
    remedy = []
    if weak is not None:
        remedy = ["To do: collect clicks on documents that are shown on both sides of weak links."]
        if weak[-1] >= NOTABLE.value:
            verdict = f"Identifiable, but barely: {factors} form one component with weak links."
    return [verdict, *_bridges(graph), *_links(graph, weak), *remedy]


def summary_html(graph: Any) -> str:
    """The verdict and the largest components as an HTML table."""
    verdict, *rest = summary_lines(graph)
    if not graph.is_connected:
        colour = "#b3261e"  # red
    elif "barely" in verdict:
        colour = "#8a5a00"  # amber
    else:
        colour = "#1b6e3c"  # green
    # Components are in the table.
    notes = [line.strip() for line in rest if not line.startswith("  component")]
    table = graph.components.head(_MAX_LISTED).dropna(axis="columns", how="all")
    percent = "{:.1%}".format
    formats = {
        "impressions": "{:,.0f}".format,
        "impressions_share": percent,
        "clicks_share": percent,
    }
    return (
        f'<div><strong style="color:{colour}">{escape(verdict)}</strong>'
        f"{table.to_html(formatters=formats, border=0)}"
        f"<p>{escape(' '.join(notes))}</p></div>"
    )


# The parts of a summary ---------------------------------------------------------------
def _components(graph):
    table = graph.components.head(_MAX_LISTED)
    # The largest ones, with some of their factors.
    lines = []
    for row in table.itertuples():
        n_factors = _count(row.n_factors, "factor")
        n_documents = _count(row.n_documents, "document")
        lines.append(
            f"  component {row.Index}: {n_factors} ({row.examples}), {n_documents}, "
            f"{100 * row.impressions_share:.1f} % of impressions"
        )
    # Small components may be thousands.
    others = graph.n_components - len(table)
    if others:
        share = graph.components["impressions_share"].iloc[len(table) :].sum()
        lines.append(f"  {others:,} more, with {100 * share:.1f} % of impressions together")
    return lines


def _features(graph, overlap):
    """Whether features separate the examination of components, if this was computed."""
    if overlap is None:
        return []
    share = overlap.between(graph._factor_names(), graph.labels)
    verdict = "may do so" if share >= ENOUGH_OVERLAP.value else "cannot do so either"
    return [
        f"Features leave {share:.2f} of what clicks say about the examination of components "
        f"(feature_overlap): a network {verdict}."
    ]


def _bridges(graph):
    if graph.n_pairs > MOST_PAIRS.value:
        return ["Bridges were not computed for a log of this size: see bridges()."]
    bridges = graph.bridges()
    if bridges.empty:
        return []
    # Documents have ids, or the first row with their features.
    columns = [name for name in ("qid", "doc", "row") if name in bridges]
    rows = bridges[columns].head(MAX_NAMED).itertuples(index=False, name=None)
    some = [row[0] if len(row) == 1 else row for row in rows]
    ids = f"{' and '.join(columns)} {name_some(some, len(bridges))}"
    if len(bridges) == 1:
        return [f"It is connected through one document alone ({ids}): see bridges()."]
    return [
        f"Removing any one of {len(bridges):,} documents ({ids}) would disconnect it: "
        "see bridges()."
    ]


def _links(graph, weak):
    if not _is_small(graph):
        return ["Weak links were not computed for a log of this size: see weak_links()."]
    lines = []
    if graph.pairs.clicks is None:
        lines.append("Clicks are unknown: the standard errors of links are lower bounds.")
    if weak is None:
        return lines
    side, error, n_factors, share = weak
    names = graph._factor_names().take(side[:MAX_NAMED])
    who = f"The examination of {{{name_some(names, len(side))}}} relative to the rest"
    if np.isinf(error):
        lines.append(f"{who} is not known: no clicked document links them.")
    else:
        lines.append(f"{who} is known only to a factor of {np.exp(1.96 * error):.3g} (95 %).")
    return [
        *lines,
        f"In all, {_count(n_factors, 'factor')} ({100 * share:.2g} % of impressions) can be "
        f"compared with the others only to a factor above {np.exp(1.96 * WEAK.value):.2g}: see "
        "weak_links().",
    ]


# Weak links ---------------------------------------------------------------------------
def _is_small(graph):
    return graph.n_pairs <= MOST_PAIRS.value and graph.n_factors <= MOST_FACTORS.value


def _weak_part(graph):
    """Smaller side of the weakest link, its standard error, and the number of factors and share of
    impressions behind weak links; None without weak links."""
    if not _is_small(graph):
        return None
    # The tree's links, weakest first.
    a, b, variance, _ = graph._links()
    if variance[0] <= WEAK.value**2:
        return None
    # Without its weakest link the tree falls into two sides.
    sides = merged_codes(graph.n_factors, a[1:], b[1:])
    one = np.flatnonzero(sides == sides[a[0]])
    other = np.flatnonzero(sides == sides[b[0]])
    smaller = min(one, other, key=len)
    # Without all weak links, into groups; most impressions are in the core.
    strong = variance <= WEAK.value**2
    groups = merged_codes(graph.n_factors, a[strong], b[strong])
    impressions = np.bincount(graph.pairs.factor, graph.pairs.impressions)
    share = np.bincount(groups, impressions) / impressions.sum()
    core = int(np.argmax(share))
    n_outside = int((groups != core).sum())
    return smaller, float(np.sqrt(variance[0])), n_outside, 1.0 - share[core]


def _count(n, noun):
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def random_graph_connected(n_nodes: int, log_apart: Floats) -> Floats:
    """Probability that a graph is connected whose edges are independent and equally likely.

    Gilbert's recursion (1959) over the size k of the part that holds the first node; above 30
    nodes its limit, in which nodes without an edge are Poisson distributed and nothing else
    divides the graph.
    """
    # Up to 30 nodes the recursion loses at most 1e-9 to rounding.
    if n_nodes > 30:
        n_alone = n_nodes * np.exp((n_nodes - 1) * log_apart)
        return np.exp(-n_alone)
    # Element by element: one probability per number of impressions.
    apart = np.exp(log_apart)
    connected = [np.ones(np.shape(apart))]
    for n in range(2, n_nodes + 1):
        # P(the part of the first node has k < n nodes): choose the others, connect them, and cut
        # all edges to the rest.
        fewer = 0
        for k in range(1, n):
            fewer = fewer + comb(n - 1, k - 1) * connected[k - 1] * apart ** (k * (n - k))
        connected.append(np.clip(1.0 - fewer, 0.0, 1.0))
    return connected[-1]
