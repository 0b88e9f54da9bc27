"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

STEPS_OF_300_QUERIES = Threshold(
    200,
    "steps of a training on 300 queries with max_epochs='auto'",
    "they grow with the root of the number of queries: few support no more, many need no fewer",
    "training_length",
)
QUERIES_PER_FEATURE = Threshold(
    3,
    "queries per feature below which a training is shorter, in proportion",
    "what a network learns last is then noise",
    "training_length",
)
FEW_QUERIES = Threshold(
    50,
    "queries below which a training is as long as one on 300",
    "on 5 to 40 made queries that cost nothing on others, and a log of one query is to be learned "
    "by heart",
    "training_length",
)
WHOLE_DECAY = Threshold(
    0.6,
    "sum of step sizes over a training, times weight_decay='auto'",
    "weights that no gradient pulls fall to exp(-0.6), 55 %, however many queries there are",
    "choice",
)
CLICKS_PER_FEATURE = Threshold(
    100,
    "clicks per feature below which weight_decay='auto' adds a penalty on weights to the loss",
    "with more, that of ridge regression cost .005 of nDCG@10 on average, and .015 in one log",
    "penalty",
)
DOCUMENTS_PER_FEATURE = Threshold(
    25,
    "documents shown per feature below which CLDRanker and HeckmanRanker have that penalty, too",
    "with 11 and 15 documents per feature it gained; with 30 and 40 it cost .03 of nDCG@3",
    "penalty",
)
LARGEST_PENALTY = Threshold(
    0.1,
    "the largest factor of squared weights in the loss with weight_decay='auto'",
    "on a log of 8 clicks per feature a factor of .11 gained .03 of nDCG@10, and .34 lost .02",
    "penalty",
)
RELEVANCE_FIRST = Threshold(
    0.5,
    "share of a training in which relevance alone explains the clicks",
    "where position tells relevance, a table of examination that is fitted first takes what the "
    "network learns only step by step",
    "reverse",
)
