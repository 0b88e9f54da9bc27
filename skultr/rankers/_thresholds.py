"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

MANY_CLICKS = Threshold(
    100,
    "effective clicks per query from which correction='auto' divides",
    "variance is then no reason against division, which does without an offset",
    "choice",
)
FEW_CLICKS = Threshold(
    5,
    "clicks per query below which a ranker that corrects warns",
    "corrections give clicks at the bottom of a page more weight, and few of them then decide",
    "choice",
)
LEAST_QUERIES = Threshold(
    10,
    "queries with clicks from which clicks weigh the members of an ensemble",
    "a standard error over fewer queries is a guess",
    "choice",
)
SHARE_OF_PRODUCTION = Threshold(
    0.5,
    "weight of production before clicks are seen",
    "a third to a half differed by .002 of nDCG@10",
    "robustness",
)
UNCONFIRMED = Threshold(
    0.75,
    "weight of production where clicks confirm no mixture",
    "the other weights would be guesses",
    "robustness",
)
SHARE_OF_JUDGED = Threshold(
    0.5,
    "weight of the member that learns from judgments before clicks and judgments are seen",
    "of two to three fifths, a half was best with right judgments, and as good with wrong ones",
    "judged",
)
MOST = Threshold(
    0.9,
    "largest weight of production",
    "it may have learned labels of the queries of the log, and is then worse on others",
    "robustness",
)
MANY_CANDIDATES = Threshold(
    4,
    "candidates per document shown from which only the first by production are ranked anew",
    "most of what a ranker loses, it loses on documents that nobody saw",
    "choice",
)
PLAUSIBLE_GAMMA = Threshold(
    0.9,
    "correlation gamma of CLDRanker from which its likelihood is not believed",
    "likelihoods largest beyond are of labels that contradict the model, as selection by rank",
    "choice",
)
WIDE_INTERVAL = Threshold(
    1.0,
    "width of the interval of gamma from which CLDRanker warns that the log does not determine it",
    "half of all correlations are then as likely as not",
    "choice",
)
NO_SCALE = Threshold(
    0.01,
    "scale of CLDRanker, as a share of the deviation of labels, below which it warns",
    "gamma then corrects hardly anything; estimates of 0 end between 0 and 0.001, by chance",
    "choice",
)
NOISE_OF_LABELS = Threshold(
    3,
    "variance of labels that features do not explain, over that which they explain: the penalty "
    "of CLDRanker is so many times that of other networks",
    "on 27 logs a third of it gained .005 of nDCG@10 less, and three times .010 less",
    "penalty",
)
SAME_AS_PRODUCTION = Threshold(
    0.99,
    "correlation from which DistilledRanker takes a feature for the score of production",
    "the copy of a score may be rounded, or of another time",
    "choice",
)
DOCUMENTS_PER_LEAF = Threshold(
    2_500,
    "documents with clicks per leaf of LambdaMARTRanker's trees with num_leaves='auto'",
    "more leaves learn the noise of small logs by heart: 4 were best with 700 to 10,500",
    "choice",
)
PRIOR_IMPRESSIONS = Threshold(
    10,
    "impressions that the prediction of a document's place by its features counts for, with "
    "policy_weights=True",
    "documents that a log shows a few times would otherwise have a chance of 0 or 1",
    "choice",
)
LARGEST_WEIGHT = Threshold(
    10,
    "most that a row weighs with policy_weights=True, before weights are scaled",
    "a document at a place where it hardly ever stands would decide alone",
    "choice",
)
MOST_FACTORS = Threshold(
    50,
    "bias factors beyond which features do not predict a document's place for policy_weights=True",
    "a regression has a curve for each factor",
    "choice",
)
