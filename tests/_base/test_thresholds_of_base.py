"""Each number of the folder that decides something, on both sides."""

import pytest

from skultr._base._comments import Comments, ids_of


def _comments(words):
    comments = Comments()
    for word in words:
        comments.add("a query", word)
    return [comments]


@pytest.mark.parametrize(("n_again", "is_read"), [(1, True), (2, False)])
def test_one_document_in_ten_may_have_been_judged_twice(n_again, is_read):
    words = [f"d{number} title" for number in range(10 - n_again)]
    ids, doubt = ids_of(_comments([*words, *words[:n_again]]), "The file")
    assert (ids is not None) == is_read
    assert bool(doubt) == (not is_read)


@pytest.mark.parametrize(("n_ids", "is_said"), [(4, False), (5, True)])
def test_half_of_the_rows_with_ids_say_that_the_others_lost_theirs(n_ids, is_said):
    words = [f"d{number}" for number in range(n_ids)]
    ids, doubt = ids_of(_comments([*words, *[""] * (10 - n_ids)]), "The file")
    assert ids is None
    assert bool(doubt) == is_said
