"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

# How much evidence there must be ------------------------------------------------------------
FEW = Threshold(
    20,
    "rows, lists or documents below which nothing is said of a rule that they all follow",
    "fewer may follow a rule by chance",
    "choice",
)
MANY = Threshold(
    100,
    "rows, lists or clicks below which no role or feature is doubted for what it varies with",
    "fewer may be equal, or differ, by chance",
    "choice",
)
LISTS_WITH_ORDER = Threshold(
    10,
    "lists, or queries, below which nothing is said of ties, of places or of values that vary",
    "a few lists differ by an error or by chance",
    "choice",
)
NEARLY_ALL = Threshold(
    0.9,
    "share of lists, documents or values from which on a rule holds for all of them",
    "the others break it by an error",
    "choice",
)
LISTS_IN_ERROR = Threshold(
    0.01,
    "share of lists in which a value that belongs to the page may vary by an error",
    "an error in a few pages is no reason to doubt the column",
    "choice",
)

# Lists that are merged ----------------------------------------------------------------------
LARGE_LOG = Threshold(
    100_000,
    "rows of a log from which on a warning says that hardly any lists were merged",
    "a smaller log fits into memory, merged or not",
    "choice",
)
HARDLY_MERGED = Threshold(
    0.9,
    "share of the rows left by merging from which on the warning is due",
    "a tenth is hardly a gain of memory",
    "choice",
)

# Pages ----------------------------------------------------------------------------------------
ROWS_OF_A_PAGE = Threshold(
    2_000,
    "rows of one list without query ids above which these were lost: an error",
    "twice the 1,000 candidates per query at which retrieval stops (the depth of TREC)",
    "theory",
)
TORN = Threshold(
    0.5,
    "share of lists with gaps above which rows seem to have been split one by one",
    "a split by rows leaves gaps in most lists of several rows",
    "theory",
)

# What y counts --------------------------------------------------------------------------------
TIMES_THE_CLICKS = Threshold(
    2,
    "times the clicks, if y is read as rates and not as counts, above which a warning says so",
    "less is as close as the clicks of half the impressions",
    "choice",
)
IMPRESSIONS_OF_A_ROW = Threshold(
    5,
    "impressions of a row from which on clicks in all or none of them are suspicious",
    "two or three in a row may agree",
    "choice",
)

# Features that follow from the click ------------------------------------------------------------
ROWS_THAT_DIFFER = Threshold(
    5,
    "clicked rows, or documents, that must differ from the rest for a column to be an outcome",
    "fewer say nothing",
    "choice",
)
DIFFER_WITHOUT_CLICK = Threshold(
    0.02,
    "share of the rows without a click that may differ for a column to be an outcome",
    "some carts are filled elsewhere; features differ in more rows",
    "choice",
)
DIFFER_WITH_CLICK = Threshold(
    10,
    "times as often as other rows clicked ones must differ for a column to be an outcome",
    "a good feature differs a few times as often",
    "choice",
)
CLICKED_OF_DIFFERING = Threshold(
    0.8,
    "share of the rows that differ that must be clicked for a column to be an outcome",
    "an outcome follows a click, save for what happened elsewhere",
    "choice",
)
CHANCE = Threshold(
    1e-5,
    "largest probability, by chance, of the clicks on the rows where a column differs",
    "a thousand columns raise one alarm in a hundred logs",
    "theory",
)
DIFFER_IN_GROUP = Threshold(
    0.5,
    "share of the rows without a click of one document that differ, from which on it is a feature",
    "what belongs to a document is there without a click, too",
    "theory",
)

# Joins that failed ------------------------------------------------------------------------------
BLANK = Threshold(
    0.01,
    "share of rows whose features are all blank from which on a join seems to have failed",
    "fewer change little",
    "choice",
)
BLANK_TOGETHER = Threshold(
    1.5,
    "times the odds of independent columns from which on features are blank together",
    "two columns that lack nothing else have 1 + 1 / share times these odds",
    "theory",
)
COLUMNS_OF_ZEROS = Threshold(
    10,
    "number of features from which on a row of zeros is blank",
    "three public sets (36,853 documents) have no row of zeros",
    "choice",
)

# Columns named as roles -------------------------------------------------------------------------
LARGEST_GRADE = Threshold(
    100,
    "values above which a column 'relevance' is a feature",
    "scales of annotators end there",
    "choice",
)
DENIED_CLICKS = Threshold(
    0.05,
    "share of the clicks that a column 'click' must deny to be something else",
    "outcomes without a logged click are rare",
    "choice",
)
IN_ORDER = Threshold(
    0.55,
    "share of the steps down a list that must fall for a score to have ordered it",
    "by chance half of them fall",
    "theory",
)
ORDERED_BY_DOCUMENTS = Threshold(
    0.05,
    "share of the variance of positions that documents explain where most lists are ordered",
    "pages that are shuffled in part stand in no order that would be clear",
    "choice",
)
EXPLAINED = Threshold(
    0.3,
    "share of the variance of positions below which bias factors have nothing to do with them",
    "factors of positions explain nearly all of it",
    "choice",
)
EXPLAINED_BY_POSITION = Threshold(
    0.03,
    "share of the variance of propensities below which positions have nothing to do with them",
    "propensities may depend on the user more than on the position",
    "choice",
)
LEAST_EXAMINATION = Threshold(
    0.2,
    "largest propensity of a log below which propensities may be those of a policy",
    "the examination of the best position is hardly ever smaller",
    "choice",
)
UNRELATED = Threshold(
    0.1,
    "rank correlation with the position below which propensities do not depend on it",
    "examination falls with the position",
    "theory",
)
ROWS_OF_A_POSITION = Threshold(
    10,
    "rows per position from which on it is no chance that each position has one value of y",
    "clicks of ten rows hardly ever agree",
    "theory",
)
ROWS_WITH_PLACES = Threshold(
    3,
    "rows of the lists in which y may be places",
    "one click on two rows numbers them, too",
    "theory",
)

# Features that name -----------------------------------------------------------------------------
LEAST_TIME = Threshold(
    1_000,
    "values from which on a column that is named as a time is one",
    "smaller ones are ages or hours",
    "choice",
)
ID_BEYOND = Threshold(
    2.0**31,
    "median above which whole numbers may be ids",
    "ids beyond 32 bits are large throughout; of counts and amounts few are",
    "theory",
)
SPREAD_OF_IDS = Threshold(
    2.5,
    "times the median up to which the 95 % quantile of ids is",
    "it is 1.9 in hashes, and more in counts and amounts",
    "theory",
)
DOCUMENTS_THAT_DIFFER = Threshold(
    3,
    "documents (of a hundred or more) that must differ for a feature not to be constant",
    "LightGBM puts at least three in a bin",
    "theory",
)

# Rankings that order nothing ------------------------------------------------------------------
SOME_WITHOUT_ORDER = Threshold(
    0.1,
    "share of queries without an order from which metrics warn of a ranking",
    "it ties few queries, if any, unless scores are missing",
    "choice",
)
NEARLY_ALL_WITHOUT_ORDER = Threshold(
    0.9,
    "share of queries without an order from which a fitted ranker warns",
    "a model of few splits may tie many queries, and still orders the others",
    "choice",
)
