"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

MOST_ROWS = Threshold(
    1_000_000,
    "rows of a log up to which describe_log reads all of them",
    "some seconds and a gigabyte; rates of a million rows have errors below .001",
    "choice",
)
DEEPEST_POSITION = Threshold(
    10_000,
    "largest number in a column that may be the position",
    "larger numbers are ids or times",
    "choice",
)
HIGHEST_GRADE = Threshold(
    100,
    "largest number in a column that may be the relevance",
    "grades are few, or percent",
    "choice",
)
FEW_PER_PAGE = Threshold(
    20,
    "values of a column of the page up to which it may be a bias factor",
    "more are hours or ids; the repair refuses more than 256",
    "choice",
)
FEW_TEXTS = Threshold(
    1_000,
    "values of a column of text up to which the code encodes it",
    "more are titles or ids; the encoder keeps the 30 most frequent ones",
    "choice",
)
LEAST_QUERIES = Threshold(
    20,
    "queries from which skultr ubi compares its model with the order served",
    "a quarter of fewer is too few to hold out",
    "choice",
)
MOST_CHANCE = Threshold(
    0.01,
    "chance of such differences of ratings by equally good documents up to which skultr ubi says "
    "that a log supports judgments",
    "of logs of pure chance it says so of one in a hundred, or fewer",
    "theory",
)
PAGES_WHOLE = Threshold(
    0.9,
    "share of places filled once from which the rows with one value of a column are a page",
    "logs that lost one row in twenty have .95; visits of two queries have .5",
    "studies/roles",
)
SAME_GRAIN = Threshold(
    0.8,
    "share of the highest recurrence from which two columns tell queries or documents alike",
    "a title recurs like its document, a category of ten queries a tenth as often as one",
    "studies/roles",
)
LEAST_FALL = Threshold(
    3,
    "standard errors by which a column of 0 and 1 falls with the position, to be the click",
    "one column in a thousand that does not depend on the position falls so by chance",
    "theory",
)
LEAST_ROWS = Threshold(
    200,
    "rows from which roles are proposed by values",
    "in fewer, chance counts up, falls and recurs, too",
    "choice",
)
CLEAR_LIFT = Threshold(
    1.5,
    "times that documents recur more often within a column than overall, to be the query",
    "pages of one query share documents; those of a device or a day do not",
    "studies/roles",
)
BUSY_USER = Threshold(
    50,
    "times the pages of the median user above which a user may be a bot",
    "people who search all day have some tens of times the pages of others",
    "choice",
)
REPEATED_PAGES = Threshold(
    0.05,
    "share of pages that repeat a page of their user above which the report says so",
    "fewer change no rate by more than their own share",
    "choice",
)
ORDERS_PAGES = Threshold(
    0.99,
    "share of the steps down the pages that must fall for a column to be the score of production",
    "a feature of that score orders some pages otherwise",
    "choice",
)
PAGE_JUMP = Threshold(
    1.2,
    "times the click rate of the position above from which a new page may begin",
    "beside three standard errors: within pages, rates fall but for chance",
    "choice",
)
FEW_CLICKS_IN_LOG = Threshold(
    100,
    "clicks of a log below which its verdict asks for care",
    "the rate of a document with all of them has an error of a tenth",
    "theory",
)
