"""Clusters of users with similar examination curves."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from .._base._callbacks import CallbackSupportMixin, with_callbacks
from .._base._sklearn import HasMethods, Interval, check_sample_weight, seeded_clone
from .._base._typing import Column, Estimator, RandomState, Table
from .._log._dataset import ClickDataset
from .._log._estimator import FrameOutput, NotPickled, ReadsLogs, SlimPickles, afresh, names_of
from .._log._faults import count_of
from .._log._reader import as_clicks
from .._log._roles import is_frame, read_role, role_columns, with_column
from .._log._segments import encode
from ..exceptions import ClickDataWarning, MissingRoleWarning, python_value, warn_user
from ._learned import RegressionEMPropensity


class UserClusters(
    ReadsLogs,
    SlimPickles,
    FrameOutput,
    CallbackSupportMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,
):
    r"""Group users with similar examination curves.

    The examination curve of each user is estimated, and pulled toward the common curve: the
    noisier it is, the more. The curves are then grouped by k-means, weighted by impressions (as in
    Figure 5(a) of [1]_). As a step of a pipeline, `UserClusters` replaces the role ``user`` by the
    number of the user's cluster. Later steps then estimate few curves, from many clicks each.

    Parameters
    ----------
    n_clusters : int, default=10
    propensity : estimator, default=None
        Estimates the curves: an estimator of ``skultr.propensity`` with ``user="user"``, which
        is cloned. The default is ``RegressionEMPropensity(user="user")``.
    random_state : int, RandomState instance or None, default=None
        Seed of k-means, and of ``propensity`` if it has none.

    Attributes
    ----------
    labels_ : Series
        Cluster of each user. Clusters are numbered by their mean examined position,
        :math:`\sum_k k\, o_k / \sum_k o_k`: users of cluster 0 look least far down. Pickles
        leave it out (see Notes).
    cluster_curves_ : DataFrame of shape (n_clusters, n_factors)
        Mean examination of each cluster by bias factor, on the scale of ``propensity_``.
    propensity_ : estimator
        The fitted clone; pickles leave it out. None if X had no users.
    n_features_in_ : int
        Number of columns without a role.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, if they are strings.

    Notes
    -----
    `transform` returns the kind of frame it is given. A frame without ``user``, as at serving
    time, is returned unchanged. Users who were not in the log of `fit` join the cluster nearest
    to the common curve, with a warning. Arrays have no users and are passed through.

    A pickle holds no users. Once loaded, `transform` treats every user as one who was not in the
    log. This changes no prediction, because rankers read no users to predict. To transform a log
    for another fit, pickle ``labels_`` too, and set it after loading.

    At positions that a user never saw, the common curve is used.

    References
    ----------
    .. [1] Niu, Mei, Yang, Zhao, Yan, Mao & Wen (2025). Addressing personalized bias for unbiased
       learning to rank.

    Examples
    --------
    Users 0 and 1 often skip the second position, users 2 and 3 examine everything:

    >>> import numpy as np
    >>> import pandas as pd
    >>> from skultr.propensity import RegressionEMPropensity, UserClusters
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({
    ...     "qid": 1, "session": np.arange(20_000) // 2, "user": np.arange(20_000) // 2 % 4,
    ...     "doc": rng.permuted(np.tile([7, 8], (10_000, 1)), axis=1).ravel(),
    ...     "position": np.tile([1, 2], 10_000),
    ... })
    >>> examined = np.where((X["position"] == 1) | (X["user"] >= 2), 1.0, 0.3)
    >>> clicks = rng.random(20_000) < 0.5 * examined
    >>> propensity = RegressionEMPropensity(user="user", relevance="embedding")
    >>> clusters = UserClusters(2, propensity=propensity, random_state=0).fit(X, clicks)
    >>> clusters.labels_.tolist()
    [0, 0, 1, 1]
    >>> clusters.transform(X.head(4))["user"].tolist()
    [0, 0, 0, 0]
    """

    labels_ = NotPickled("the users of the log")
    propensity_ = NotPickled("examination curves of users")

    _parameter_constraints = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "propensity": [HasMethods(["fit", "predict"]), None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        propensity: Estimator | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.propensity = propensity
        self.random_state = random_state

    @with_callbacks
    @afresh
    def fit(
        self,
        X: Table | ClickDataset,
        y: Column | None = None,
        sample_weight: Column | None = None,
    ) -> Self:
        """Estimate the curves of the users and group them.

        Parameters
        ----------
        X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
            The click log, with the role ``user``.
        y : array-like of shape (n_rows,)
            Clicks or click rates.
        sample_weight : array-like of shape (n_rows,), default=None
            Multiplies ``impressions``, relative to its mean: a common factor changes nothing.

        Returns
        -------
        self : UserClusters

        Raises
        ------
        ValueError
            If there are fewer users than clusters, or ``propensity`` estimates no curves of users.
        """
        self._validate_params()
        task = self._init_callback_context().call_on_fit_task_begin(estimator=self, X=X, y=y)
        self.propensity_ = None
        self._read(X, y, sample_weight, {}, reset=True)
        task.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def transform(self, X: Table | ClickDataset) -> Any:
        """Replace each user by the number of their cluster.

        Parameters
        ----------
        X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset

        Returns
        -------
        X_new : frame, ndarray, sparse matrix or ClickDataset
            X with another column ``user``; unchanged if it has no users.
        """
        return self._transformed(X)

    def _transform_dataset(self, X):
        if not self._has_clusters or "user" not in X.roles:
            return X
        users = X.to_places()["user"].unique()
        return X.with_values("user", users, self._clusters_of(users))

    def _transform_rows(self, X):
        X = self._checked(X, reset=False)
        if not self._has_clusters or not is_frame(X) or "user" not in role_columns(X):
            return X
        return with_column(X, "user", self._clusters_of(read_role(X, "user")))

    @property
    def _has_clusters(self):
        return "cluster_curves_" in vars(self)

    def _clusters_of(self, users):
        if not hasattr(self, "labels_"):
            warn_user(
                "This UserClusters was loaded from a pickle, which holds no users: those of "
                f"{count_of(len(users), 'row')} join cluster {self._nearest}, whose curve is "
                "nearest to the common one. This changes no prediction of a ranker. To transform "
                "a log for another fit, pickle labels_ too, and set it after loading.",
                ClickDataWarning,
            )
            return np.full(len(users), self._nearest)
        # -1: a user whom fit has not seen.
        place = self.labels_.index.get_indexer(users)
        unknown = users[place < 0]
        if len(unknown):
            warn_user(
                f"Found {count_of(len(unknown), 'row')} of users who are not in the training log, "
                f"such as {python_value(unknown[0])!r}: they join cluster {self._nearest}, whose "
                "curve is nearest to the common one.",
                ClickDataWarning,
            )
        return np.where(place < 0, self._nearest, self.labels_.to_numpy(np.int64)[place])

    # Fitting ------------------------------------------------------------------------------
    def _read_dataset(self, X, *, reset):
        self._checked(X, reset=reset)
        users = X.to_places()["user"] if "user" in X.roles else None
        self._fit_users(X, None, None, users)

    def _read_rows(self, X, y, sample_weight, roles, *, reset):
        X = self._checked(X, reset=reset)
        if y is not None:
            y = as_clicks(X, y)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X)
        users = read_role(X, "user")
        # Without users nothing is fitted, and no clicks are needed.
        if users is not None and y is None:
            raise ValueError(
                "UserClusters requires y to be passed, but the target y is None: pass the "
                "clicks (0 or 1) or click rates of the rows."
            )
        self._fit_users(X, y, sample_weight, users)

    def _fit_users(self, X, y, sample_weight, users):
        if users is None:
            if names_of(X):
                found = "has no column 'user'"
            else:
                found = "is an array, whose columns have no roles"
            warn_user(
                f"X {found}: UserClusters groups nobody and returns X unchanged. Pass a frame "
                "with the column 'user'.",
                MissingRoleWarning,
            )
            return
        _, ids = encode(users, "The role 'user'")
        n_users = len(ids)
        if n_users < self.n_clusters:
            raise ValueError(
                f"X has {count_of(n_users, 'user')}; expected at least "
                f"n_clusters={self.n_clusters}. Lower n_clusters, or leave this step out."
            )
        self.propensity_ = self._estimator().fit(X, y, sample_weight)
        # Over the factors that the log determines.
        common = self.propensity_.average_examination_["examination"].dropna()
        table = self.propensity_.examination_
        curves = table["examination"].unstack("bias")
        # A user who was never shown a factor has the common curve there.
        curves = curves[common.index].fillna(common)
        impressions = table["impressions"].groupby(level="user").sum()
        label, centers = self._group(curves, impressions.loc[curves.index])
        self.labels_ = pd.Series(label, curves.index, name="cluster")
        self.cluster_curves_ = centers
        distance = ((centers - common) ** 2).sum(axis=1)
        self._nearest = int(distance.argmin())

    def _estimator(self):
        if self.propensity is None:
            return RegressionEMPropensity(user="user", random_state=self.random_state)
        if getattr(self.propensity, "user", None) != "user":
            raise ValueError(
                f"propensity={self.propensity!r} does not estimate a curve for each user; "
                "expected an estimator of skultr.propensity with user='user'."
            )
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        return seeded_clone(self.propensity, seed)

    def _group(self, curves, impressions):
        """Cluster of each curve, and the mean curve of each cluster."""
        distinct = curves.round(2).drop_duplicates()
        # As many clusters as curves that differ by more than rounding; KMeans would warn.
        n_clusters = min(self.n_clusters, len(distinct))
        if n_clusters < self.n_clusters:
            warn_user(
                f"The {len(curves)} users have only {count_of(n_clusters, 'distinct curve')}; "
                f"other differences are noise. n_clusters={self.n_clusters} is reduced to "
                f"{n_clusters}.",
                ClickDataWarning,
            )
        # Ten starts, because a single one may end in a local optimum; users weigh by impressions.
        means = KMeans(n_clusters, n_init=10, random_state=self.random_state)
        found = means.fit(curves.to_numpy(), sample_weight=impressions.to_numpy())
        centers = found.cluster_centers_
        # Clusters are numbered by how far their users look: the mean position of an examination.
        factor = curves.columns.to_numpy()
        depth = centers @ factor / centers.sum(axis=1)
        order = np.argsort(depth, kind="stable")
        number = np.argsort(order)
        index = pd.RangeIndex(n_clusters, name="cluster")
        return number[found.labels_], pd.DataFrame(centers[order], index, curves.columns)
