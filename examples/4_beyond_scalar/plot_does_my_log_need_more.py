"""
Does my log need more than a scalar?
====================================

**Claim.** With grades, :func:`~skultr.identifiability.factor_rank` estimates from 40,000 sessions
how many products of relevance and examination the clicks need: one where users have position bias,
two where they trust the top, and five, which is all there are, where they click by the table of a
real search engine. 2,000 sessions already distinguish one product from several. Without grades it
takes 40,000 sessions, and it finds that one product is not enough in the same two logs.

**Limit.** The policy shows documents at several positions; without that, documents cannot be
compared with themselves. Without grades the number is approximate: it finds two products of
TianGong's five, because documents of a group differ in grade. And absence is harder to show than
presence: for position bias the same 40,000 sessions give one product, with the remark that they
are too few to be sure. One log of each kind.
"""

# %%
# Three kinds of users
# --------------------
#
# The same result pages, and three ways to click on them: by examination times relevance; with
# trust in the top of the page; and by the click rates that Chen et al. (2022) [1]_ counted on a
# real search engine, TianGong-ST.
import matplotlib.pyplot as plt
import pandas as pd

from skultr.datasets import make_ltr
from skultr.identifiability import factor_rank
from skultr.plotting import RankDisplay
from skultr.simulation import (
    ClickMatrixUser,
    PlackettLucePolicy,
    PositionBasedUser,
    TrustBiasUser,
    simulate_clicks,
)

USERS = {
    "position bias": PositionBasedUser(),
    "trust bias": TrustBiasUser(),
    "TianGong-ST": ClickMatrixUser(),
}
documents = make_ltr(n_queries=800, n_features=5, random_state=0)


def make_log(user, n_sessions):
    """Impressions with their grades, and clicks."""
    X, clicks, _ = simulate_clicks(
        documents,
        user=user,
        n_sessions=n_sessions,
        policy=PlackettLucePolicy(),
        random_state=0,
    )
    columns = ["session", "qid", "doc", "position", "relevance"]
    return X[columns], clicks


# %%
# The test
# --------
#
# Here each row of the matrix is a grade. ``rank`` is the smallest number of products of document
# and position that the test does not reject; ``summary()`` recommends what to do.
logs = {name: make_log(user, n_sessions=40_000) for name, user in USERS.items()}
results = {
    name: factor_rank(X, clicks, rows="relevance", random_state=0)
    for name, (X, clicks) in logs.items()
}
for name, result in results.items():
    print(f"{name}\n{result.summary()}\n")

# %%
# The figure
# ----------
#
# Above, the singular values: filled where the product is needed, against the floor that noise
# alone reaches. Below, the click rates; if one product were enough, all rows would be multiples of
# one.
figure, panels = plt.subplots(2, 3, figsize=(13, 6.5), layout="constrained")
for (name, result), axes in zip(results.items(), panels.T, strict=True):
    display = RankDisplay.from_result(result, axes=axes)
    title = axes[0].get_title(loc="left")
    axes[0].set_title(f"{name}: {title}", loc="left", fontsize="medium")
plt.show()

# %%
# Without grades, and with fewer clicks
# -------------------------------------
#
# Few logs have grades. Then documents are compared with themselves at other positions, in groups
# of similar attractiveness. If a log is too small for an answer, ``is_conclusive`` is false.
rows = []
for name, user in USERS.items():
    for n_sessions in (2_000, 40_000):
        X, clicks = make_log(user, n_sessions)
        for by in ("relevance", None):
            result = factor_rank(X, clicks, rows=by, n_resamples=99, random_state=0)
            rows.append(
                {
                    "users": name,
                    "sessions": n_sessions,
                    "rows": by or "groups of documents",
                    "rank": result.rank,
                    "is_conclusive": result.is_conclusive,
                }
            )
table = pd.DataFrame(rows)
print(table.to_string(index=False))

# %%
# The claim, checked
# ------------------
#
# With grades: one, two and five products at 40,000 sessions, and 2,000 tell one from several.
# Without: more than one is found in the same two logs, at 40,000.
ranks = table.set_index(["rows", "sessions", "users"])["rank"]
graded, grouped = ranks["relevance"], ranks["groups of documents"]
assert graded[40_000].to_dict() == {"position bias": 1, "trust bias": 2, "TianGong-ST": 5}
for found in (graded[2_000], grouped[40_000]):
    assert found["position bias"] == 1 < found[["trust bias", "TianGong-ST"]].min()

# %%
# .. [1] M. Chen, C. Liu, Z. Liu and J. Sun (2022). Scalar is not enough: vectorization-based
#    unbiased learning to rank. KDD.
