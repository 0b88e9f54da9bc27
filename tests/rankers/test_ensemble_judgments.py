"""EnsembleRanker with judgments beside the clicks: what they teach, where features come from."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr import ClickDataset
from skultr.datasets import make_ltr
from skultr.exceptions import AssumptionWarning, ClickDataWarning
from skultr.metrics import RankingScorer, ndcg_score
from skultr.preprocessing import OnFeatures
from skultr.rankers import EnsembleRanker, IPSRanker, LambdaMARTRanker
from skultr.rankers._judged import read_judgments_of
from skultr.serving import export_judgments, export_model, load_model, read_judgments, save_model
from skultr.simulation import PlackettLucePolicy, production_scores, simulate_clicks

MEMBERS = [("trees", LambdaMARTRanker(n_estimators=10, num_leaves=4, early_stopping=False))]


def served_log(n_sessions=1500, seed=0):
    """Documents of 60 queries and of 40 others, and a log of the 60."""
    documents = make_ltr(100, n_features=8, random_state=seed)
    documents["production"] = production_scores(documents, random_state=seed)
    others = documents[documents["qid"] >= 60]
    documents = documents[documents["qid"] < 60]
    log, clicks, _ = simulate_clicks(
        documents,
        n_sessions=n_sessions,
        policy=PlackettLucePolicy(),
        scores=documents["production"],
        random_state=seed,
    )
    return documents, others, log.drop(columns="relevance"), clicks


DOCUMENTS, OTHERS, LOG, CLICKS = served_log()
FEATURES = [*DOCUMENTS.filter(like="feature")]
# Those that were shown: of others, a table without features would be a warning.
JUDGED = DOCUMENTS[DOCUMENTS["qid"] < 30].merge(LOG[["qid", "doc"]].drop_duplicates())
TABLE = JUDGED[["qid", "doc", "relevance"]]
#: Queries whose shown documents have several grades.
VARIED = [qid for qid, grades in TABLE.groupby("qid")["relevance"] if grades.nunique() > 1]


def fitted(judgments=TABLE, log=LOG, clicks=CLICKS, **given):
    ranker = EnsembleRanker(MEMBERS, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        return ranker.fit(log, clicks, judgments=judgments, **given)


def same(one, other):
    np.testing.assert_array_equal(one.predict(DOCUMENTS), other.predict(DOCUMENTS))
    pd.testing.assert_frame_equal(one.weights_, other.weights_)


# What is learned ------------------------------------------------------------------------
def test_a_member_learns_from_judgments_and_production_stays_the_last():
    ranker = fitted()
    assert ranker.weights_.index.tolist() == ["trees", "judged", "production"]
    assert ranker.weights_["weight"].sum() == pytest.approx(1)
    assert [*ranker.named_estimators_] == ["trees", "judged"]
    parts = ranker.explain(DOCUMENTS)
    assert parts["judged"].std() > 0
    np.testing.assert_allclose(parts.sum(axis=1), ranker.predict(DOCUMENTS))


def test_right_judgments_raise_ndcg_on_other_queries():
    def ndcg(ranker):
        scores = ranker.predict(OTHERS)
        return ndcg_score(OTHERS["relevance"], scores, qid=OTHERS["qid"], k=10)

    table = JUDGED.drop(columns="production")
    log = LOG.drop(columns="production")
    assert ndcg(fitted(table, log)) > ndcg(fitted(None, log)) + 0.02


def test_judgments_at_random_lose_their_weight():
    rng = np.random.default_rng(0)
    wrong = JUDGED.assign(relevance=rng.permutation(JUDGED["relevance"]))
    right = fitted(JUDGED).weights_["weight"]
    assert fitted(wrong).weights_.loc["judged", "weight"] < right["judged"] - 0.2


def test_held_out_grades_choose_weights_and_not_clicks_alone(monkeypatch):
    both = fitted(JUDGED).weights_["weight"]
    ignoring = "skultr.rankers._ensemble.ClicksAndGrades"
    monkeypatch.setattr(ignoring, lambda clicks, grades, share: clicks)
    clicks = fitted(JUDGED).weights_["weight"]
    assert np.abs(both - clicks).max() > 0.01


def test_without_production_judgments_weigh_the_members():
    log = LOG.drop(columns="production")
    ranker = fitted(JUDGED.drop(columns="production"), log)
    assert ranker.weights_.index.tolist() == ["trees", "judged"]
    assert ranker.weights_["standard_error"].notna().all()
    alike = fitted(None, log).weights_
    assert alike["weight"].tolist() == [1.0]


def test_the_column_relevance_of_the_log_is_never_read():
    relevance = np.random.default_rng(0).integers(0, 5, len(LOG)).astype(float)
    annotated = LOG.assign(relevance=relevance)
    same(fitted(None), fitted(None, annotated))
    same(fitted(), fitted(log=annotated))


def test_members_of_clicks_are_those_of_a_fit_without_judgments():
    with_judgments = fitted().named_estimators_["trees"]
    without = fitted(None).named_estimators_["trees"]
    features = DOCUMENTS[FEATURES].to_numpy()
    np.testing.assert_array_equal(with_judgments.predict(features), without.predict(features))


def test_order_and_scale_of_the_judgments_change_nothing():
    shuffled = TABLE.sample(frac=1, random_state=0)
    same(fitted(), fitted(shuffled))
    same(fitted(), fitted(TABLE.assign(relevance=TABLE["relevance"] * 4)))


def test_a_query_is_never_scored_by_what_learned_its_grades(monkeypatch):
    # A learner that remembers each query by a feature of it.
    judged = JUDGED.assign(**{FEATURES[0]: JUDGED["qid"] + 0.5})
    seen = []

    class Remembers(LambdaMARTRanker):
        def _fit(self, log, task):
            seen.append({*log.features[:, 0]})
            super()._fit(log, task)

        def _score(self, features):
            assert not seen[-1] & {*features[:, 0]} or len(seen) > 5
            return super()._score(features)

    def remembering(seed):
        return Remembers(debiasing="none", n_estimators=3, early_stopping=False)

    monkeypatch.setattr("skultr.rankers._ensemble.judged_ranker", remembering)
    log = LOG.assign(**{FEATURES[0]: LOG["qid"] + 0.5})
    fitted(judged, log)
    # Five parts, and a last fit to all.
    sizes = [len(queries) for queries in seen]
    assert sum(sizes[:5]) == 4 * sizes[5]


# Where features come from -----------------------------------------------------------------
def test_features_come_from_the_log_from_documents_or_from_the_table():
    shown = LOG.drop_duplicates(["qid", "doc"])
    table = shown[["qid", "doc"]].merge(JUDGED, on=["qid", "doc"])
    by_log = fitted(table[["qid", "doc", "relevance"]])
    roles = LOG.drop(columns=FEATURES)
    documents = DOCUMENTS[["qid", "doc", *FEATURES]]
    by_documents = fitted(table[["qid", "doc", "relevance"]], roles, documents=documents)
    by_table = fitted(table)
    same(by_log, by_documents)
    same(by_log, by_table)


def test_the_table_may_hold_queries_that_the_log_does_not_have():
    ranker = fitted(OTHERS)
    assert ranker.weights_.loc["judged", "weight"] > 0
    # Rows need no id of the document if they have features.
    same(ranker, fitted(OTHERS.drop(columns="doc")))


def test_documents_hold_candidates_that_the_log_never_showed():
    roles = LOG.drop(columns=FEATURES)
    both = pd.concat([DOCUMENTS, OTHERS])
    documents = both[["qid", "doc", *FEATURES, "production"]]
    judged = both[["qid", "doc", "relevance"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClickDataWarning)
        EnsembleRanker(MEMBERS).fit(roles, CLICKS, documents=documents, judgments=judged)


def test_rows_of_the_log_that_were_not_shown_have_features_too():
    hidden = DOCUMENTS.drop(columns="relevance").assign(session=10_000, position=np.nan)
    log = pd.concat([LOG, hidden], ignore_index=True)
    clicks = np.append(CLICKS, np.zeros(len(hidden)))
    same(fitted(JUDGED), fitted(TABLE, log, clicks))


def test_pairs_without_features_are_left_out_and_said():
    both = pd.concat([TABLE, OTHERS[["qid", "doc", "relevance"]]])
    counts = f"{len(OTHERS)} of {len(both)} judged pairs are neither in the log"
    with pytest.warns(ClickDataWarning, match=counts):
        EnsembleRanker(MEMBERS, random_state=0).fit(LOG, CLICKS, judgments=both)


def test_text_ids_of_files_are_the_numbers_of_the_log():
    text = export_judgments(TABLE, "trec", grades={0: 0, 1: 1, 2: 2, 3: 3, 4: 4})
    same(fitted(), fitted(read_judgments(text, "trec")))
    named = LOG.assign(qid=LOG["qid"].astype(str), doc=LOG["doc"].astype(str))
    assert fitted(log=named).weights_.loc["judged", "weight"] > 0
    by_text = fitted(TABLE.astype({"qid": str, "doc": str}))
    same(fitted(), by_text)
    whole = LOG.astype({"doc": float})
    same(fitted(), fitted(TABLE.astype({"doc": str}), whole))


def test_polars_and_arrays_give_the_same():
    expected = fitted()
    same(expected, fitted(pl.from_pandas(TABLE), pl.from_pandas(LOG)))
    roles = ("qid", "session", "doc", "position", "production")
    given = {role: LOG[role].to_numpy() for role in roles}
    ranker = fitted(TABLE, LOG[FEATURES].to_numpy(), CLICKS, **given)
    np.testing.assert_array_equal(ranker.weights_, expected.weights_)


def test_a_log_on_disk_takes_judgments(tmp_path):
    dataset = ClickDataset.from_parquet(LOG.assign(click=CLICKS), path=tmp_path / "log")
    ranker = fitted(TABLE, dataset, None)
    np.testing.assert_allclose(ranker.weights_, fitted().weights_, rtol=1e-6)


def test_categories_and_missing_values_reach_the_member():
    name = FEATURES[0]
    brands = np.array(["red", "green", "blue"])
    brand = pd.Categorical(brands[DOCUMENTS["doc"] % 3])
    documents = DOCUMENTS.assign(brand=brand, **{name: DOCUMENTS[name].where(brand != "red")})
    columns = documents[["qid", "doc", "brand", name]]
    log = LOG.drop(columns=name).merge(columns, on=["qid", "doc"])
    clicks = LOG.assign(click=CLICKS).merge(columns[["qid", "doc"]], on=["qid", "doc"])["click"]
    ranker = fitted(documents[documents["qid"] < 30], log, clicks.to_numpy())
    assert ranker.named_estimators_["judged"].booster_.num_feature() == 9
    assert np.isfinite(ranker.predict(documents)).all()


def test_unjudged_rows_and_columns_of_other_names_are_passed_over():
    unjudged = DOCUMENTS[DOCUMENTS["qid"] >= 30].assign(relevance=np.nan)
    table = pd.concat([JUDGED, unjudged])[["qid", "doc", "relevance"]].assign(judge="Ann")
    same(fitted(), fitted(table))


def test_grades_of_documents_without_production_train_and_do_not_weigh():
    others = OTHERS.drop(columns="production")
    with pytest.warns(ClickDataWarning, match="only clicks choose the weights"):
        ranker = EnsembleRanker(MEMBERS).fit(LOG, CLICKS, judgments=others)
    assert ranker.weights_.loc["judged", "weight"] > 0


def test_the_log_has_the_production_of_a_table_with_features():
    shown = LOG[["qid", "doc"]].drop_duplicates()
    table = JUDGED.merge(shown, on=["qid", "doc"])
    same(fitted(table), fitted(table.drop(columns="production")))


def test_few_clicks_leave_the_weights_of_the_prior():
    few = LOG["qid"] < 5
    with pytest.warns(ClickDataWarning, match="those of the prior"):
        ranker = EnsembleRanker(MEMBERS).fit(LOG[few], CLICKS[few], judgments=JUDGED)
    assert ranker.weights_["weight"].tolist() == [0.25, 0.5, 0.25]


# What is refused ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            TABLE.assign(qid=TABLE["qid"] + 999),
            f"None of {len(TABLE)} judged pairs .* is in the log, such",
        ),
        (TABLE.assign(relevance=-1.0), "finite grades of at least 0"),
        (TABLE.assign(relevance=np.inf), "finite grades of at least 0"),
        (TABLE.drop(columns="qid"), "no column 'qid'"),
        (TABLE.rename(columns={"relevance": "grade"}), "no column 'relevance'"),
        (TABLE.drop(columns="doc"), "Nothing links the judgments to features"),
        (pd.concat([TABLE, TABLE.assign(relevance=9.0)]), "with several grades, such as"),
        (TABLE[TABLE["qid"].isin(VARIED[:9])], "different relevance: 9; expected at least 10"),
        (TABLE.assign(relevance=1.0), "different relevance: 0; expected"),
        (TABLE.iloc[:0], "no row with a relevance"),
    ],
)
def test_judgments_that_cannot_be_used_are_an_error(table, message):
    with pytest.raises(ValueError, match=message):
        fitted(table)


def test_a_pair_that_is_there_twice_with_one_grade_counts_once():
    same(fitted(), fitted(pd.concat([TABLE, TABLE])))


def test_what_is_no_frame_is_refused():
    with pytest.raises(TypeError, match="judgments is a list"):
        fitted([(0, 0, 1.0)])


def test_other_rankers_refuse_judgments():
    with pytest.raises(TypeError, match="IPSRanker takes no judgments"):
        IPSRanker().fit(LOG.drop(columns="production"), CLICKS, judgments=TABLE)


def test_a_member_may_not_have_the_name():
    ranker = EnsembleRanker([("judged", MEMBERS[0][1])])
    with pytest.raises(ValueError, match="A member is called 'judged'"):
        ranker.fit(LOG, CLICKS, judgments=TABLE)
    assert "judged" in ranker.fit(LOG, CLICKS).weights_.index


def test_a_log_without_ids_of_documents_needs_features_in_the_table():
    log = LOG.drop(columns="doc")
    with pytest.raises(ValueError, match="the log names no documents"):
        fitted(TABLE, log)
    assert "judged" in fitted(JUDGED, log).weights_.index


# Beside scikit-learn, and on the way to an engine ---------------------------------------------
def test_a_fit_without_judgments_forgets_those_of_the_last_one():
    ranker = fitted()
    ranker.fit(LOG, CLICKS)
    same(ranker, fitted(None))
    assert not [name for name in vars(ranker) if "judg" in name]


def test_clones_pickles_and_saved_models(tmp_path):
    ranker = fitted()
    same(pickle.loads(pickle.dumps(ranker)), ranker)
    save_model(ranker, tmp_path / "model.skops")
    loaded = load_model(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.predict(DOCUMENTS), ranker.predict(DOCUMENTS))
    same(clone(ranker).fit(LOG, CLICKS, judgments=TABLE), ranker)


def with_long_ids(frame):
    """Ids of documents from 2**53 on, of which floats have only the even ones."""
    return frame.assign(doc=frame["doc"] + 2**53)


def test_ids_of_64_bits_find_their_documents_beside_ids_of_text():
    log = with_long_ids(LOG)
    table = with_long_ids(TABLE)
    table = table.assign(doc=table["doc"].astype(str))
    stranger = pd.DataFrame({"qid": [0], "doc": ["SKU-1"], "relevance": [2]})
    right = fitted(table, log)
    with pytest.warns(ClickDataWarning, match=f"^1 of {len(table) + 1} judged pairs are neither"):
        beside = fitted(pd.concat([table, stranger]), log)
    same(right, beside)


def test_numbers_in_another_form_are_other_ids():
    other = TABLE.assign(qid="0" + TABLE["qid"].astype(str))
    with pytest.raises(ValueError, match="of qid and doc is in the log, such as"):
        fitted(other)


def test_one_id_as_text_and_as_a_number_is_one_id():
    text = TABLE.assign(qid=TABLE["qid"].astype(str))
    reversed_ = TABLE.assign(relevance=4 - TABLE["relevance"])
    with pytest.raises(ValueError, match="with several grades"):
        fitted(pd.concat([text.astype({"qid": object}), reversed_.astype({"qid": object})]))


def test_scorers_tell_of_queries_whose_judgments_taught():
    ranker = fitted()
    np.testing.assert_array_equal(ranker.judged_queries_, np.unique(ranker.judged_queries_))
    assert {*ranker.judged_queries_} <= {*TABLE["qid"]}
    n_taught = len(ranker.judged_queries_)
    with pytest.warns(AssumptionWarning, match=f"judgments of {n_taught} of the 60 annotated"):
        RankingScorer()(ranker, DOCUMENTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RankingScorer()(ranker, OTHERS)
        RankingScorer()(fitted(None), DOCUMENTS)


def test_it_is_exported_as_one_forest():
    log = LOG.drop(columns="production")
    trees = EnsembleRanker("trees", random_state=0)
    trees.set_params(naive__n_estimators=5, trees__n_estimators=5)
    trees.fit(log, CLICKS, judgments=JUDGED)
    forest = export_model(trees, "xgboost+json")
    assert len(forest) > 0


def test_a_pipeline_passes_judgments_on():
    pipeline = make_pipeline(OnFeatures(StandardScaler()), EnsembleRanker(MEMBERS, random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickDataWarning)
        pipeline.fit(LOG, CLICKS, ensembleranker__judgments=TABLE)
    # By their ids they have the features that the steps before have made.
    assert pipeline[-1].weights_.loc["judged", "weight"] > 0
    assert np.isfinite(pipeline.predict(DOCUMENTS)).all()


@pytest.mark.parametrize("routing", [False, True])
def test_a_search_passes_the_whole_table_to_each_fold(routing, monkeypatch):
    rows = []

    def counted(judgments, *others):
        rows.append(len(judgments))
        return read_judgments_of(judgments, *others)

    monkeypatch.setattr("skultr.rankers._ensemble.read_judgments_of", counted)
    log = LOG.assign(
        relevance=DOCUMENTS.set_index(["qid", "doc"])["relevance"]
        .loc[pd.MultiIndex.from_frame(LOG[["qid", "doc"]])]
        .to_numpy()
    )
    search = GridSearchCV(
        EnsembleRanker(MEMBERS, random_state=0),
        {"cv": [2]},
        scoring=RankingScorer(),
        cv=2,
    )
    with sklearn.config_context(enable_metadata_routing=routing), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(log, CLICKS, judgments=JUDGED)
    assert rows == [len(JUDGED)] * 3


def test_a_pipeline_transforms_judgments_with_features_if_it_is_told_to():
    steps = OnFeatures(StandardScaler()).fit(LOG)
    expected = fitted(steps.transform(JUDGED), steps.transform(LOG))
    ranker = EnsembleRanker(MEMBERS, random_state=0)
    pipeline = make_pipeline(clone(steps), ranker, transform_input=["judgments"])
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        pipeline.fit(LOG, CLICKS, judgments=JUDGED)
    np.testing.assert_allclose(pipeline[-1].weights_, expected.weights_, rtol=1e-6)
