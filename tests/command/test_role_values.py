"""Roles are found by what columns hold: on logs of makers' schemas, under any names."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.studies.roles import log_of, mistakes
from skultr import describe_log


@pytest.mark.parametrize("names", ["own", "Japanese", "numbered"])
@pytest.mark.parametrize("schema", ["shop", "jobs", "market", "groceries"])
def test_roles_are_right_under_any_names(schema, names):
    log, holds = log_of(schema, names, seed=3)
    assert mistakes(log, holds) == []


@pytest.fixture(scope="module")
def numbered():
    """A shop's log under names that tell nothing, and the column of each part."""
    log, holds = log_of("shop", "numbered", seed=1)
    return log, {part: name for name, part in holds.items()}


def test_every_proposal_has_a_reason_and_a_confidence(numbered):
    log, name = numbered
    roles = describe_log(log).roles
    assert roles.loc[name["position"], "role"] == "position"
    assert roles.loc[name["position"], "confidence"] == "medium"
    assert "counts the rows" in roles.loc[name["position"], "reason"]
    named = describe_log(log.rename(columns={name["position"]: "Rang"}))
    assert named.roles.loc["Rang", "confidence"] == "high"
    assert "'Rang' is the position (high confidence): counts the rows" in str(named)
    assert describe_log(log[:50].rename(columns={name["click"]: "klick"})).roles.loc[
        "klick"
    ].tolist() == ["click", "low", "its name alone says so"]


def test_two_columns_that_fit_alike_are_left_to_the_user(numbered):
    log, name = numbered
    other = log[name["position"]].to_numpy()
    report = describe_log(log.assign(col_99=other))
    assert "position" not in report.rename.values()
    assert "It may be 'col_99'." in " ".join(report.faults)
    # A name decides.
    report = describe_log(log.assign(rang=other))
    assert report.rename["rang"] == "position"


def test_what_was_bought_or_seen_is_no_click(numbered):
    log, name = numbered
    rng = np.random.default_rng(0)
    clicked = log[name["click"]].astype(bool)
    seen = clicked | (rng.random(len(log)) < 0.9 / (1 + log[name["position"]]) ** 0.2)
    report = describe_log(log.assign(col_98=seen))
    assert report.rename[name["click"]] == "click"
    assert report.rename[name["cart"]].startswith("outcome_")


def test_slots_that_were_paid_are_no_clicks(numbered):
    log, name = numbered
    n_ads = pd.Series(np.random.default_rng(0).integers(4, size=len(log)))
    paid = log[name["position"]] < n_ads.groupby(log[name["page"]]).transform("first")
    report = describe_log(log.assign(col_98=paid.astype(int)).drop(columns=name["cart"]))
    assert report.rename[name["click"]] == "click"
    assert "col_98" not in report.rename


@pytest.mark.parametrize("called", ["Seite", "page", "ページ", "col_99"])
@pytest.mark.parametrize("n_alike", [0, 2])
def test_a_page_by_its_name_comes_before_its_time(called, n_alike, numbered):
    log, name = numbered
    page = log[name["page"]]
    code = page.astype("category").cat.codes.astype("int64")
    # Two pages at the same second are one page by their time.
    second = 1_700_000_000 + code.where(code >= n_alike, 0)
    log = log.drop(columns=name["page"])
    log.insert(0, "col_97", second)
    found = describe_log(log.assign(**{called: page})).rename
    session = next(column for column, role in found.items() if role == "session")
    # Where neither the name nor a page says which, the first is taken.
    assert session == ("col_97" if called == "col_99" and not n_alike else called)


def test_given_roles_stay_what_they_are(numbered):
    log, name = numbered
    report = describe_log(log, rename={name["device"]: "qid"})
    assert report.rename[name["device"]] == "qid"
    assert [*report.rename.values()].count("qid") == 1
