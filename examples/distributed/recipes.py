"""From a cluster to a ranker: the recipes of "My log is on a cluster".

``dataset_from_...`` write a log to Parquet, from which one machine trains any ranker.
The others train trees on the cluster. Each of these takes the table of
``skultr.propensity.debiased_table`` in its engine and the features of the documents there, and
returns a model in memory: ``predict`` and ``skultr.serving.export_model`` need no cluster.
"""

from skultr import ClickDataset


def dataset_from_spark(log, documents, folder):
    """Parquet by Spark, then a dataset; ``folder`` is one that Spark and this machine share."""
    log.write.parquet(f"{folder}/log")
    documents.write.parquet(f"{folder}/documents")
    return ClickDataset.from_parquet(
        f"{folder}/log", f"{folder}/documents", path=f"{folder}/clicks"
    )


def dataset_from_dask(log, documents, folder):
    """Parquet by Dask, then a dataset; ``folder`` is one that Dask and this machine share."""
    log.to_parquet(f"{folder}/log", write_index=False)
    documents.to_parquet(f"{folder}/documents", write_index=False)
    return ClickDataset.from_parquet(
        f"{folder}/log", f"{folder}/documents", path=f"{folder}/clicks"
    )


def queries_whole(rows, client):
    """The rows in a partition per worker, the documents of a query one behind the other."""
    n_workers = len(client.scheduler_info(n_workers=-1)["workers"])
    rows = rows.shuffle("group", npartitions=n_workers)
    return rows.map_partitions(lambda part: part.sort_values("group")).persist()


def lightgbm_on_dask(table, documents, features, client):
    """LightGBM's ranker on Dask: integer grades, weights of documents, sizes of groups."""
    from lightgbm.dask import DaskLGBMRanker

    rows = queries_whole(table.merge(documents, on=["qid", "doc"]), client)
    grade = (30 * rows["label"].clip(0, 1)).round().astype("int64")
    sizes = rows.map_partitions(lambda part: part.groupby("group").size())
    ranker = DaskLGBMRanker(
        client=client,
        n_estimators=50,
        num_leaves=15,
        label_gain=[step / 30 for step in range(31)],
        n_jobs=1,
        verbose=-1,
    )
    ranker.fit(rows[features], grade, group=sizes, sample_weight=rows["weight"])
    return ranker.to_local()


def xgboost_on_dask(table, documents, features, client):
    """XGBoost's ranker on Dask: labels as they are, queries whole in sorted partitions."""
    from xgboost.dask import DaskXGBRanker

    rows = queries_whole(table.merge(documents, on=["qid", "doc"]), client)
    ranker = DaskXGBRanker(
        # Queries are whole already. Else XGBoost shuffles the rows into a partition per query.
        allow_group_split=True,
        objective="rank:ndcg",
        ndcg_exp_gain=False,
        n_estimators=50,
        max_depth=4,
        learning_rate=0.1,
    )
    ranker.client = client
    ranker.fit(rows[features], rows["label"], qid=rows["group"])
    return ranker.get_booster()


def xgboost_on_spark(table, documents, features, n_workers=2):
    """XGBoost's ranker on Spark: labels as they are, queries whole in sorted partitions."""
    from xgboost.spark import SparkXGBRanker

    rows = table.join(documents, ["qid", "doc"])
    ranker = SparkXGBRanker(
        features_col=features,
        label_col="label",
        qid_col="group",
        num_workers=n_workers,
        # By ranges of qid_col. Else rows that are in n_workers partitions stay where they are.
        force_repartition=True,
        objective="rank:ndcg",
        ndcg_exp_gain=False,
        n_estimators=50,
        max_depth=4,
        learning_rate=0.1,
    )
    return ranker.fit(rows).get_booster()


def synapseml_on_spark(table, documents, features):
    """SynapseML's LightGBM ranker on Spark. Not run in the tests: written by its documentation."""
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import functions as F
    from synapse.ml.lightgbm import LightGBMRanker

    rows = table.join(documents, ["qid", "doc"])
    grade = F.round(30 * F.least(F.col("label"), F.lit(1.0))).cast("int")
    rows = VectorAssembler(inputCols=features, outputCol="features").transform(
        rows.withColumn("grade", grade)
    )
    ranker = LightGBMRanker(
        labelCol="grade",
        featuresCol="features",
        groupCol="group",
        weightCol="weight",
        labelGain=[step / 30 for step in range(31)],
        numIterations=50,
        numLeaves=15,
        repartitionByGroupingColumn=True,
    )
    return ranker.fit(rows)
