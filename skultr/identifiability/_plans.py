"""Plans that join the components of bias factors, and result lists that carry them out.

Both repairs of a disconnected log add links between components until all are connected, at the
least total cost: a minimum spanning tree. The cost of a link between two components is the least
between their members. The matrix of these costs is never held: Prim's algorithm computes a row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import (
    breadth_first_order,
    connected_components,
    dijkstra,
    minimum_spanning_tree,
)
from scipy.spatial.distance import cdist

from .._base._typing import Bools, Floats, Ints
from .._log._cells import weighted_graph
from .._log._clicklog import make_click_log
from .._log._faults import count_of
from .._log._pairs import Pairs, read_documents
from .._log._roles import read_column
from .._log._segments import pair_codes
from ..exceptions import ClickDataWarning, warn_user
from ._bias_features import MAX_NAMED, factor_codes, plain
from ._bridges import first_by, members_of
from ._thresholds import MOST_HOURS

#: Added to the cost of an intervention that no list can carry out; above all other costs.
_OUT_OF_REACH = 1e9
#: Number of costs computed at a time: 16 MB.
_CHUNK = 1 << 21


def merge_plan(vectors: Floats, labels: Ints) -> tuple[Ints, Ints, Floats]:
    """Pairs of bias factors to merge: they connect all components at the least total distance.

    The pairs are the exact minimum spanning tree over components; the distance of components A
    and B is the least Euclidean distance of their bias features, min |v_a - v_b| over factors a
    of A and b of B.
    """
    vectors = np.asarray(vectors, dtype=float)
    # Columns without differences do not change distances.
    differs = np.ptp(vectors, axis=0) > 0
    vectors = vectors[:, differs]
    if vectors.shape[1] <= 1:
        return _merge_on_a_line(vectors.sum(axis=1), labels)
    # In several dimensions all distances between components are computed.
    _refuse_if_endless(len(vectors), vectors.shape[1])
    a, b, squared = _prim(labels, _nearest(vectors, labels))
    return a, b, np.sqrt(squared)


def intervention_plan(
    doc: Ints,
    factor: Ints,
    labels: Ints,
    relevance: Floats,
    examination: Floats,
    *,
    reach: Floats | float = 0.0,
    needed: Floats | float = 0.0,
) -> tuple[Ints, Ints, Ints, Floats]:
    """Documents to show once under another factor: they connect all components at the least cost.

    If document x, logged under factor t, is also shown under t', the ratio of the examinations of
    t and t' can be estimated with a variance proportional to

        cost(x, t, t') = 1 / (r_x o_t) + 1 / (r_x o_t') - 2

    (Proposition 1 of Chen et al., "Identifiability matters", ICML 2024). The cost of joining
    components A and B is the least over documents x and factors t of A and t' of B, or the
    reverse; the plan is the minimum spanning tree.
    """
    target = first_by(examination, labels)  # where a document would be shown
    slope = 1.0 / relevance[doc]
    needed = np.broadcast_to(needed, len(labels))
    # Candidates by component: whose document moves, and what a swap to each target costs.
    swaps = _Swaps(
        labels[factor],
        slope / examination[factor],
        slope,
        np.broadcast_to(reach, len(doc)),
        inverse=1.0 / examination[target],
        needed=needed[target],
    )
    a, b, cost = _prim(np.arange(len(target)), swaps.from_and_to)
    out = np.empty(len(a), dtype=np.intp)
    to = np.empty(len(a), dtype=np.intp)
    for link, (left, right) in enumerate(zip(a, b, strict=True)):
        # The tree knows the cost of a link, not which of the two sends a document.
        cost_there, pair_there = swaps.cheapest(left, np.array([right]))
        cost_back, pair_back = swaps.cheapest(right, np.array([left]))
        if cost_there[0] <= cost_back[0]:
            out[link] = pair_there[0]
            to[link] = target[right]
        else:
            out[link] = pair_back[0]
            to[link] = target[left]
    cost = np.where(cost < _OUT_OF_REACH, cost, cost - _OUT_OF_REACH) - 2
    return doc[out], factor[out], to, cost


def random_plan(doc: Ints, factor: Ints, labels: Ints, rng: Any) -> tuple[Ints, Ints, Ints]:
    """Interventions for random costs, as a baseline that ignores relevance and examination.

    The result is distributed as that of :func:`intervention_plan` if the costs of all triples
    (document, factor, other factor) were independent draws from one continuous distribution.
    """
    n_components = int(labels.max(initial=-1)) + 1
    n_factors = np.bincount(labels, minlength=n_components)
    n_pairs = np.bincount(labels[factor], minlength=n_components)

    def cost_of_joining(outside, component):
        # The tree depends only on the order of the costs, so that they may be exponential; the
        # least of m of them is exponential with rate m. Each two components are compared once.
        n_there = n_pairs[component] * n_factors[outside]
        n_back = n_pairs[outside] * n_factors[component]
        with np.errstate(divide="ignore"):  # no triple joins a component without pairs
            return rng.standard_exponential(len(outside)) / (n_there + n_back), component

    def prepare(outside):
        return partial(cost_of_joining, outside)

    a, b, _ = _prim(np.arange(n_components), prepare)
    # All triples of a link are equally likely: which side sends, then which pair and factor.
    forward = n_pairs[a] * n_factors[b]
    backward = n_pairs[b] * n_factors[a]
    swap = rng.random(len(a)) * (forward + backward) >= forward
    sender = np.where(swap, b, a)
    receiver = np.where(swap, a, b)
    pair = _random_member(labels[factor], n_pairs, sender, rng)
    to = _random_member(labels, n_factors, receiver, rng)
    return doc[pair], factor[pair], to


def merged_codes(n_factors: int, a: Ints, b: Ints) -> Ints:
    """Code of each factor after merging pairs: equal for merged ones, numbered by their first."""
    graph = coo_array((np.ones(len(a)), (a, b)), (n_factors, n_factors))
    _, component = connected_components(graph, directed=False)
    codes, _ = pd.factorize(component)
    return codes


def neighbour_inside(
    vectors: Floats, labels: Ints, chosen: Ints, distance: Floats
) -> tuple[Ints, Floats]:
    """For each chosen factor, the factor of its component nearest to a given distance from it, or
    -1, and its distance, or NaN, where no factor of the component has other features."""
    neighbour = np.full(len(chosen), -1)
    members = members_of(labels)
    # Only within a component does the log determine ratios.
    for component, places in members_of(labels[chosen]).items():
        if len(members[component]) > 1:
            there = vectors[chosen[places]]
            off = partial(_off, vectors, there, distance[places])
            least, nearest = _least(off, members[component], len(places))
            neighbour[places] = np.where(np.isfinite(least), nearest, -1)
    apart = np.linalg.norm(vectors[chosen] - vectors[neighbour], axis=1)
    return neighbour, np.where(neighbour < 0, np.nan, apart)


def _off(vectors, there, distance, rows):
    """How far the distances of some factors are from given ones; infinite at the same place."""
    apart = cdist(vectors[rows], there)
    return np.where(apart > 0, np.abs(apart - distance), np.inf)


def relative_scales(a: Ints, b: Ints, change: Floats) -> Floats:
    """Scale of each node of a tree, 1 at node 0: that of b is exp(change) times that of a, and
    every a is 0 or an earlier b."""
    # Logarithms are added along the tree, from node 0.
    scale = np.zeros(len(a) + 1)
    for parent, node, step in zip(a, b, change, strict=True):
        scale[node] = scale[parent] + step
    # Above, a scale is as good as infinite; sums of such scales are still finite.
    return np.exp(np.minimum(scale, 500.0))


def tree_diameter(a: Ints, b: Ints, length: Floats) -> float:
    """Length of the longest path in a tree; NaN where a length is unknown."""
    if np.isnan(length).any():
        return float("nan")
    tree = weighted_graph(len(a) + 1, a, b, length)
    # A node farthest from any node is one end of a longest path.
    distance = dijkstra(tree, directed=False, indices=0)
    end = int(distance.argmax())
    return float(dijkstra(tree, directed=False, indices=end).max())


def _prim(labels, prepare):
    """Minimum spanning tree over components of items, grown from component 0.

    ``prepare(items)`` returns a function of a component, which returns the cost from it to each of
    the items, and the member of the component that has this cost (one value, or one per item).
    """
    outside = np.flatnonzero(labels != 0)
    component = labels[outside]
    n_links = int(labels.max(initial=0))
    links = np.empty((2, n_links), dtype=np.intp)
    costs = np.empty(n_links)
    # The least cost at which each item can be joined so far, and from where.
    best = np.full(len(outside), np.inf)
    source = np.zeros(len(outside), dtype=np.intp)
    cost_from = prepare(outside)
    pending = np.ones(len(outside), dtype=bool)
    joined = 0
    for link in range(n_links):
        # The component that was joined last may be nearer to those outside.
        cost, origin = cost_from(joined)
        nearer = cost < best
        nearer &= pending
        np.copyto(best, cost, where=nearer)
        np.copyto(source, origin, where=nearer)
        # Join the nearest one, with all of its items.
        place = int(best.argmin())
        links[:, link] = source[place], outside[place]
        costs[link] = best[place]
        joined = component[place]
        done = component == joined
        best[done] = np.inf
        pending[done] = False
        # Compact the arrays once an eighth of the items has been joined: compacting at each step
        # would copy all that remain each time.
        if 8 * np.count_nonzero(pending) < 7 * len(pending):
            outside = outside[pending]
            component = component[pending]
            best = best[pending]
            source = source[pending]
            cost_from = prepare(outside)
            pending = np.ones(len(outside), dtype=bool)
    return links[0], links[1], costs


def _nearest(vectors, labels):
    """Costs for :func:`_prim`: squared distances from the nearest factor of a component."""
    # From a component, each outside factor is nearest to one of its members.
    members = members_of(labels)

    def prepare(outside):
        there = vectors[outside]

        def distances(rows):
            return cdist(vectors[rows], there, "sqeuclidean")

        def cost_from(component):
            return _least(distances, members[component], len(there))

        return cost_from

    return prepare


def _least(costs, rows, n_columns):
    """Least cost at each column (infinite without rows), and the row that has it (one for all if
    there is one); ``costs(rows)`` is computed in chunks."""
    if len(rows) == 1:
        return costs(rows)[0], rows[0]
    least = np.full(n_columns, np.inf)
    which = np.zeros(n_columns, dtype=np.intp)
    # Rows in chunks: the matrix of all costs may not fit into memory.
    step = max(1, _CHUNK // max(1, n_columns))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        cost = costs(part)
        line = cost.argmin(axis=0)
        cost = cost[line, np.arange(n_columns)]
        # The first of equal ones stays.
        lower = cost < least
        least[lower] = cost[lower]
        which[lower] = part[line[lower]]
    return least, which


def _merge_on_a_line(values, labels):
    """The merge plan in one dimension, where only neighbours can be the nearest factors."""
    # Neighbours of different components, the nearest first.
    order = np.argsort(values, kind="stable")
    left = order[:-1]
    right = order[1:]
    gap = values[right] - values[left]
    link = np.flatnonzero(labels[left] != labels[right])
    link = link[np.argsort(gap[link], kind="stable")]
    left = left[link]
    right = right[link]
    n = int(labels.max()) + 1
    low, high = np.sort([labels[left], labels[right]], axis=0)
    # The cheapest link of any two components.
    _, first = np.unique(pair_codes(low, high, n), return_index=True)
    kept = np.sort(first)
    left = left[kept]
    right = right[kept]
    # Ranks replace the costs, because an edge of weight 0 would not exist in a sparse graph.
    rank = np.arange(1.0, len(kept) + 1)
    tree = minimum_spanning_tree(weighted_graph(n, low[kept], high[kept], rank))
    used = tree.data.astype(np.intp) - 1
    left = left[used]
    right = right[used]
    # From component 0 on, each link leads from a parent a to a child b.
    nodes, parents = breadth_first_order(tree, 0, directed=False)
    flip = parents[labels[right]] != labels[left]
    a = np.where(flip, right, left)
    b = np.where(flip, left, right)
    turn = np.argsort(nodes)
    order = np.argsort(turn[labels[b]])  # each component after the one it joins
    a = a[order]
    b = b[order]
    return a, b, np.abs(values[a] - values[b])


def _refuse_if_endless(n_factors, n_dimensions):
    """Refuse merge plans that take hours on one core, for half of all distances and their minima.

    In nanoseconds, per pair of factors: 2 for the minimum and 0.25 per dimension.
    """
    nanoseconds = n_factors**2 / 2 * (2.0 + 0.25 * n_dimensions)
    hours = nanoseconds * 1e-9 / 3600
    if hours > MOST_HOURS.value:
        raise ValueError(
            f"Merging {n_factors:,} bias factors by {n_dimensions} bias features would take about "
            f"{hours:,.0f} hours, because every two of them are compared; expected at most "
            f"{MOST_HOURS.value:g} hours. Use coarser bias factors (fewer bias columns, or values "
            "in groups), or a single bias feature, for which millions of factors take seconds."
        )


class _Swaps:
    """Candidates that can be the cheapest of their component, and what they cost at its target.

    At a target with inverse examination z = 1 / o_t', the pair (x, t) costs
    intercept + slope z - 2, with intercept = 1 / (r_x o_t) and slope = 1 / r_x. A pair is never
    the cheapest if another of its component that reaches as far has a smaller intercept and a
    smaller slope.
    """

    def __init__(self, component, intercept, slope, reach, inverse, needed):
        # The tier of a pair is how many of the needed positions its list reaches. Pairs of one
        # component and tier compete, by ascending slope.
        tier = np.searchsorted(np.unique(needed), reach, side="right")
        group = component.astype(np.int64) * (len(needed) + 1) + tier
        order = np.lexsort((intercept, slope, group))
        rank = np.argsort(np.argsort(intercept[order], kind="stable"))
        # Ranks drop from one group to the next, so that the running minimum restarts there.
        lowest = np.minimum.accumulate(rank - group[order] * len(order))
        is_lower = np.append(True, lowest[1:] < lowest[:-1])
        kept = np.sort(order[is_lower])
        by_component = np.lexsort((intercept[kept], slope[kept], component[kept]))
        self.pair = kept[by_component]
        self.component = component[self.pair]
        self.reach = reach[self.pair]
        self.intercept = intercept[self.pair]
        self.slope = slope[self.pair]
        self.bounds = np.searchsorted(self.component, np.arange(len(needed) + 1))
        self.inverse = inverse
        self.needed = needed

    def costs(self, lines, targets):
        """Cost of some candidates at one target, or at several, (n_lines, n_targets)."""
        is_far = self.reach[lines] < self.needed[targets]
        far = np.where(is_far, _OUT_OF_REACH, 0.0)
        return self.intercept[lines] + far + self.slope[lines] * self.inverse[targets]

    def cheapest(self, component, targets):
        """Least cost of the candidates of a component at each target, and the pair that has it."""
        lines = np.arange(self.bounds[component], self.bounds[component + 1])

        def costs(part):
            return self.costs(part[:, None], targets)

        least, line = _least(costs, lines, len(targets))
        return least, np.broadcast_to(self.pair[line], len(targets))

    def from_and_to(self, outside):
        """Costs for :func:`_prim`: the least of swaps from a component to others and back."""
        # Swaps from components outside to the one that was joined.
        lines = np.flatnonzero(np.isin(self.component, outside))
        sender = np.searchsorted(outside, self.component[lines])

        def cost_of_joining(joined):
            cost, _ = self.cheapest(joined, outside)
            np.minimum.at(cost, sender, self.costs(lines, joined))
            return cost, joined

        return cost_of_joining


def _random_member(labels, sizes, components, rng):
    """A random item of each of some components."""
    order = np.argsort(labels, kind="stable")
    starts = np.cumsum(sizes) - sizes
    drawn = rng.integers(sizes[components])
    return order[starts[components] + drawn]


#: Columns that must be unique together among shown rows.
_LIST = ("qid", "session", "position")


def read_lists(
    X: Any, graph: Any, values: Mapping[str, NDArray[Any]], shown: Bools
) -> ServedLists | None:
    """The lists of a frame; None without queries or positions, or if a list repeats a position."""
    frame = nw.from_native(X, eager_only=True)
    if "qid" not in frame.columns or "position" not in frame.columns:
        return None
    # A list is the rows of one page, with one row per position.
    keys = {name: frame[name].to_numpy() for name in _LIST if name in frame.columns}
    if pd.DataFrame(keys)[shown].duplicated().any():
        warn_user(
            "Some queries show two rows at one position, so that their rows are no result lists, "
            "and intervened_lists_ is None. Name each result page in a column 'session', or "
            "reduce the log with skultr.aggregate_clicks.",
            ClickDataWarning,
        )
        return None
    factor = np.where(shown, factor_codes(graph.factors, values), -1)
    pairs = graph.pairs
    # Documents without ids are those of equal features, by their first row.
    if pairs.doc_ids is None:
        codes, first = read_documents(frame, set(values))
        doc = pd.Index(pairs.doc_row).get_indexer(first[codes])
    else:
        columns = [read_column(X, name) for name in pairs.doc_ids.names]
        ids = columns[0] if len(columns) == 1 else pd.MultiIndex.from_arrays(columns)
        doc = pairs.doc_ids.get_indexer(ids)
    return ServedLists(X, doc, factor, graph.factors)


def warn_about_impossible(impossible: list[int], interventions: pd.DataFrame) -> None:
    """Warn of the interventions that no list of the log can carry out."""
    if not impossible:
        return
    table = interventions.iloc[impossible[:MAX_NAMED]].drop(columns="cost")
    # The first ones by name.
    named = []
    for row in table.to_dict("records"):
        parts = [f"{name} {plain(value)!r}" for name, value in row.items()]
        named.append(" ".join(parts))
    more = ", ..." if len(impossible) > MAX_NAMED else ""
    warn_user(
        f"{len(impossible)} of {count_of(len(interventions), 'intervention')} cannot be carried "
        f"out by swapping two documents of a list of the log: {'; '.join(named)}{more}. "
        "intervened_lists_ leaves them out; serve longer lists for them.",
        ClickDataWarning,
    )


class ServedLists:
    """Distinct lists of a log, indexed by a document and the factor it was shown under."""

    def __init__(self, X: Any, doc: Ints, factor: Ints, factors: pd.DataFrame) -> None:
        shown = factor >= 0
        roles = {"doc": doc, "doc_scope": "global", "bias": np.where(shown, factor, np.nan)}
        nothing = np.empty((len(doc), 0), dtype=np.float32)
        # Any clicks: only what was shown counts.
        clicks = np.where(shown, 0.5, 0.0)
        self.log = make_click_log(X, nothing, clicks, roles=roles).fold()
        self.factors = factors
        self._others = [name for name in factors if name not in ("qid", "doc", "position")]
        self._length = np.maximum.reduceat(self.log.position, self.log.offsets[:-1])
        key = pair_codes(self.log.doc, self.log.bias, len(factors))
        self._rows = np.lexsort((-self.log.weight, key))
        self._keys = key[self._rows]

    def longest(self, doc: Ints, factor: Ints) -> Ints:
        """Last position of the longest list that shows each document under each factor."""
        length = self._length[self.log.list_[self._rows]]
        keys, first = np.unique(self._keys, return_index=True)
        longest = np.maximum.reduceat(length, first)
        wanted = pair_codes(doc, factor, len(self.factors))
        return longest[np.searchsorted(keys, wanted)]

    def swapped(
        self, doc: Ints, start: Ints, to: Ints, pairs: Pairs
    ) -> tuple[pd.DataFrame, list[int]]:
        """Table of the lists to serve (columns ``intervention``, ``qid``, ``doc``, ``position``
        and other bias columns), and the interventions that no list of the log can carry out."""
        # Swap by swap: there are as many as components.
        lists = []
        impossible = []
        for number, (own_doc, own_start, own_to) in enumerate(zip(doc, start, to, strict=True)):
            found = self._find(own_doc, own_start, own_to)
            if found is None:
                impossible.append(number)
                continue
            rows, moved, partner = found
            served = self._swap(rows, moved, partner, own_to, pairs)
            lists.append(served.assign(intervention=number))
        names = ["intervention", "qid", "doc", "position", *self._others]
        if not lists:
            return pd.DataFrame(columns=names), impossible
        return pd.concat(lists, ignore_index=True)[names], impossible

    def _find(self, doc, start, to):
        """Rows of the most frequent list that permits the swap, and the two to swap; or None."""
        # Rows of the document under the factor, the most frequent first.
        key = doc * len(self.factors) + start
        first, last = np.searchsorted(self._keys, [key, key + 1])
        found = self._rows[first:last]
        log = self.log
        placed = "position" in self.factors
        if placed:
            position = int(self.factors["position"].iloc[to])
            found = found[self._length[log.list_[found]] >= position]
        # The first list with a partner for the document.
        for row in found:
            list_ = log.list_[row]
            rows = np.arange(log.offsets[list_], log.offsets[list_ + 1])
            is_there = log.position[rows] == position if placed else log.bias[rows] == to
            if is_there.any():
                return rows, row, rows[int(is_there.argmax())]
            if not placed:  # the document keeps its position, and its context changes
                return rows, row, row
        return None

    def _swap(self, rows, moved, partner, to, pairs):
        """The list of these rows with two of them swapped, as a table."""
        log = self.log
        # Places of the two rows within the list.
        ends = np.searchsorted(rows, [moved, partner])
        swapped = np.arange(len(rows))
        swapped[ends] = ends[::-1]
        documents = pairs.name_documents(log.doc[rows])
        columns = {
            "qid": log.query_ids[log.query[rows]],
            "doc": documents.iloc[:, -1].to_numpy(),
            "position": log.position[rows[swapped]],
        }
        bias = log.bias[rows[swapped]]
        for name in self._others:
            # A column that is constant on the page changes there, another one is swapped.
            values = self.factors[name].iloc[bias].reset_index(drop=True)
            changed = slice(None) if values.nunique() == 1 else ends[0]
            values.iloc[changed] = self.factors[name].iloc[to]
            columns[name] = values
        return pd.DataFrame(columns).sort_values("position", kind="stable")
