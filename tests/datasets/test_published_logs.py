"""Small files in the layouts of TianGong-ST and Baidu-ULTR, and damaged ones."""

import gzip

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from skultr.datasets import load_baidu_ultr, load_tiangong_st
from skultr.exceptions import ClickDataWarning

MODELS = "".join(
    f"<{name}>0.1</{name}>\n" for name in ("TACM", "PSCM", "THCM", "UBM", "DBN", "POM")
)


def result(rank, doc):
    return (
        f'<result rank="{rank}">\n<url>http://a.cn/{doc}</url>\n<docid>{doc}</docid>\n'
        f"<title>题目</title>\n<vtype>vr_1</vtype>\n<relevance>\n{MODELS}</relevance>\n</result>\n"
    )


def interaction(number, query, docs, clicked=()):
    results = "".join(result(rank, doc) for rank, doc in enumerate(docs, start=1))
    clicks = "".join(
        f"<click>\n<docid>{docs[rank - 1]}</docid>\n<rank>{rank}</rank>\n"
        "<timestamp>1427848226</timestamp>\n</click>\n"
        for rank in clicked
    )
    clicks = f"<clicked>\n{clicks}</clicked>\n" if clicked else ""
    return (
        f'<interaction num="{number}">\n<query>查询</query>\n<query_id>{query}</query_id>\n'
        f"<results>\n{results}</results>\n{clicks}</interaction>\n"
    )


SESSIONS = (
    '<?xml version="1.0" encoding="utf-8"?>\n<tiangong-st>\n<session num="7">\n'
    + interaction(1, "q1", ["d1", "d2", "d3"], [2])
    + interaction(2, "q2", ["d4", "d1"])
    + '</session>\n<session num="9">\n'
    + interaction(1, "q1", ["d2", "d1", "d3"], [1, 3])
    + "</session>\n</tiangong-st>\n"
)
GRADES = "1\t9 q1\td1\t3\n1\t9 q1\td2\t0\n2\t7 q1\td1\t4\n"


@pytest.fixture
def sessions(tmp_path):
    path = tmp_path / "sogousessiontrack2020.xml"
    path.write_text(SESSIONS, encoding="utf-8")
    return path


def test_pages_of_tiangong(sessions):
    log = load_tiangong_st(sessions)
    assert log.columns.tolist() == ["session", "qid", "doc", "position", "click"]
    assert log["session"].tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert log["qid"].tolist() == ["q1"] * 3 + ["q2"] * 2 + ["q1"] * 3
    assert log["doc"].tolist() == ["d1", "d2", "d3", "d4", "d1", "d2", "d1", "d3"]
    assert log["position"].tolist() == [1, 2, 3, 1, 2, 1, 2, 3]
    assert log["click"].tolist() == [0, 1, 0, 0, 0, 1, 0, 1]
    packed = sessions.with_suffix(".xml.gz")
    packed.write_bytes(gzip.compress(sessions.read_bytes()))
    assert_frame_equal(load_tiangong_st(str(packed)), log)


def test_a_grade_is_of_a_query_and_document(sessions, tmp_path):
    (tmp_path / "labels.txt").write_text(GRADES)
    log = load_tiangong_st(sessions, grades=tmp_path / "labels.txt")
    expected = [3.5, 0, None, None, None, 0, 3.5, None]  # q2 and d1 have none
    assert_frame_equal(log[["relevance"]], pd.DataFrame({"relevance": expected}))
    assert_frame_equal(log.drop(columns="relevance"), load_tiangong_st(sessions))


TIANGONG_DAMAGE = {
    "cut": (SESSIONS[: len(SESSIONS) // 2], "no element found|not well-formed|unclosed"),
    "html": ("<html><body>moved</body></html>", "there is no result page"),
    "lines": ("1\t2\t[3, 4]\n", "syntax error|not well-formed"),
    "empty": ("", "no element found"),
    "no query": (SESSIONS.replace("<query_id>q2</query_id>\n", ""), "result 3 are .*'', 'd4'"),
    "no document": (SESSIONS.replace("<docid>d4</docid>\n", "", 1), "result 3 are .*'q2', ''"),
    "no rank": (SESSIONS.replace(' rank="3"', ""), "result 2 are .*'d3', 'None'"),
    "long rank": (SESSIONS.replace(' rank="3"', f' rank="{"9" * 23}"'), "result 2 are"),
    "rank 0": (SESSIONS.replace(' rank="3"', ' rank="0"'), "result 2 are .*'d3', '0'"),
}


@pytest.mark.parametrize("damage", TIANGONG_DAMAGE)
def test_damaged_sessions_are_one_sentence(damage, tmp_path):
    text, message = TIANGONG_DAMAGE[damage]
    path = tmp_path / "sessions.xml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        load_tiangong_st(path)
    told = str(caught.value)
    assert told.startswith(f"{path} cannot be read as the sessions of TianGong-ST (")
    assert told.endswith("Is it whole, as it was handed out, and packed as its suffix says?")
    assert "\n" not in told


def test_other_encodings(sessions):
    sessions.write_bytes(SESSIONS.encode("gb18030"))  # what its first line does not say
    with pytest.raises(ValueError, match="cannot be read as the sessions"):
        load_tiangong_st(sessions)
    text = SESSIONS.replace('encoding="utf-8"', 'encoding="utf-16"')
    sessions.write_bytes(text.encode("utf-16"))
    assert len(load_tiangong_st(sessions)) == 8


def test_packed_files_that_are_none_or_cut(tmp_path):
    path = tmp_path / "sessions.xml.gz"
    for content in (SESSIONS.encode(), gzip.compress(SESSIONS.encode())[:-30]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="packed as its suffix says"):
            load_tiangong_st(path)


@pytest.mark.parametrize(
    "text",
    [
        "1 9 q1 d1 5\n",
        "1 9 q1 d1\n",
        "1 9 q1 d1 good\n",
        "",
        "\x00\x00 \x00",
        "1 9 q1 d1 3 7\n",
        "1 9 q1 d1 3\n1 9 q1 d2 3 7\n",
        "1 9 q1 d1 3\n1 9 q1 d2\n",
        "1 9 q7 d1 3\n",
    ],
)
def test_damaged_grades(sessions, tmp_path, text):
    (tmp_path / "labels.txt").write_text(text)
    with pytest.raises(ValueError, match=r"labels\.txt cannot be read as the grades"):
        load_tiangong_st(sessions, grades=tmp_path / "labels.txt")


def test_ids_within_blanks_have_their_grades(sessions, tmp_path):
    (tmp_path / "labels.txt").write_text(GRADES)
    expected = load_tiangong_st(sessions, grades=tmp_path / "labels.txt")
    text = SESSIONS.replace("query_id>q1<", "query_id>\n q1 <").replace(">d1<", "> d1\n<")
    sessions.write_text(text, encoding="utf-8")
    assert_frame_equal(load_tiangong_st(sessions, grades=tmp_path / "labels.txt"), expected)


def test_clicks_without_a_result_are_counted(sessions):
    for rank, text in (("2", "02"), ("3", "abc"), ("1", "7")):
        damaged = SESSIONS.replace(f"<rank>{rank}</rank>", f"<rank>{text}</rank>")
        sessions.write_text(damaged, encoding="utf-8")
        with pytest.warns(ClickDataWarning, match=r"no result of their page has their rank: 1\. "):
            log = load_tiangong_st(sessions)
        assert log["click"].sum() == 2


def test_missing_files(tmp_path, sessions):
    for call in (
        lambda: load_tiangong_st(tmp_path / "none.xml"),
        lambda: load_tiangong_st(sessions, grades=tmp_path / "none.txt"),
        lambda: load_baidu_ultr(tmp_path / "none.gz"),
        lambda: load_baidu_ultr(tmp_path / "none.feather"),
    ):
        with pytest.raises(FileNotFoundError, match="none"):
            call()


# Baidu --------------------------------------------------------------------------------
def page(query, *documents):
    lines = [[query, "12\x0177", "5\x016"]]
    for position, (doc, click) in enumerate(documents, start=1):
        rest = [str(each / 7) for each in range(25)]
        lines.append([str(position), doc, "5\x019", '"7', "3", str(click), *rest, ""])
    return "".join("\t".join(line) + "\n" for line in lines)


PART = page("9", ("a0", 0), ("b1", 1)) + page("4", ("a0", 1)) + page("9", ("b1", 0), ("c2", 0))


@pytest.fixture
def part(tmp_path):
    path = tmp_path / "part-00000.gz"
    path.write_bytes(gzip.compress(PART.encode()))
    return path


def test_pages_of_baidu(part, tmp_path):
    log = load_baidu_ultr(part)
    names = ["session", "qid", "doc", "position", "click", "media_type"]
    assert log.columns.tolist() == names
    assert log["session"].tolist() == [0, 0, 1, 2, 2]
    assert log["qid"].tolist() == ["9", "9", "4", "9", "9"]
    assert log["doc"].tolist() == ["a0", "b1", "a0", "b1", "c2"]
    assert log["position"].tolist() == [1, 2, 1, 1, 2]
    assert log["click"].tolist() == [0, 1, 1, 0, 0]
    assert (log["media_type"] == 3).all()
    plain = tmp_path / "part-00001"
    plain.write_text(PART)
    both = load_baidu_ultr([part, plain])
    assert both["session"].tolist() == [0, 0, 1, 2, 2, 3, 3, 4, 5, 5]
    assert both["doc"].dtype == "category"
    assert_frame_equal(both.iloc[:5], log)


def features(**changes):
    table = pd.DataFrame(
        {
            "query_no": [5, 5, 8],
            "query_id": ["9", "9", "4"],
            "query_md5": "ff",
            "url_md5": ["a0", "b1", "a0"],
            "text_md5": ["x", "y", "x"],
            "position": [1, 2, 1],
            "click": [0, 1, 0],
            "media_type": [3, 3, 1],
            "displayed_time": [0.1, 0.2, 0.3],
            "query_document_embedding": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
            "bm25": [0.5, 0.7, 0.1],
            "tf": [1.0, 2.0, 3.0],
        }
    )
    return table.assign(**changes)


@pytest.mark.parametrize("kind", ["feather", "parquet"])
def test_parts_with_features(kind, tmp_path):
    path = tmp_path / f"part-1_split-0.{kind}"
    getattr(features(), f"to_{kind}")(path)
    log = load_baidu_ultr(path)
    assert log.columns[6:].tolist() == ["bm25", "tf"]
    assert log["session"].tolist() == [0, 0, 1]
    assert log[["bm25", "click"]].to_numpy().tolist() == [[0.5, 0], [0.7, 1], [0.1, 0]]
    more = load_baidu_ultr([path, path], embeddings=True)
    assert more["session"].tolist() == [0, 0, 1, 2, 2, 3]
    assert list(more["query_document_embedding"][1]) == [3.0, 4.0]


@pytest.mark.parametrize("kind", ["feather", "parquet"])
def test_the_index_of_the_writer_is_no_row_number(kind, tmp_path):
    path = tmp_path / f"part.{kind}"
    frame = features()
    for each in (frame.iloc[1:], frame.set_index("query_no")):
        if kind == "feather" and each.index.name:
            each = each.reset_index()  # feather stores no index
        try:
            getattr(each, f"to_{kind}")(path)
        except ValueError:
            continue  # some versions of pandas write no feather with an index
        log = load_baidu_ultr(path)
        assert log["bm25"].tolist() == each["bm25"].tolist()
        assert log["doc"].tolist() == each["url_md5"].tolist()


def test_integer_ids_may_be_0(tmp_path):
    path = tmp_path / "part.parquet"
    features(query_no=[0, 0, 1], query_id=[0, 0, 7], url_md5=[0, 1, 0]).to_parquet(path)
    log = load_baidu_ultr(path)
    assert log["qid"].tolist() == [0, 0, 7]
    assert log["doc"].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"click": [0, 0.9, 0.2]},
        {"position": [1, 1.9, 1]},
        {"position": [1, np.inf, 1]},
        {"position": ["1", "9" * 23, "1"]},
        {"media_type": ["1", "9" * 23, "1"]},
        {"query_no": [5, np.nan, 5]},
        {"query_no": ["5", None, "5"]},
        {"query_id": ["9", "", "4"]},
        {"url_md5": ["9", None, "4"]},
    ],
    ids=str,
)
def test_values_that_are_no_numbers_or_ids(change, tmp_path):
    path = tmp_path / "part.parquet"
    features(**change).to_parquet(path)
    with pytest.raises(ValueError, match=r"cannot be read .*the values of result 1 are"):
        load_baidu_ultr(path)


BAIDU_DAMAGE = {
    "a column less": (PART.replace("\t5\x019", ""), "line 2 has 31 columns"),
    "a column more": (PART.replace("\t5\x019", "\t5\t9"), "line 2 has 33 columns"),
    "begins within a page": (PART.split("\n", 1)[1], "line 1 has 32 columns"),
    "blanks": (PART.replace("\t", " "), "line 1 has 1 columns"),
    "position": (PART.replace("2\tb1", "0\tb1"), "result 1 are .*b'0'"),
    "click": (PART.replace("3\t1\t", "3\t7\t"), "result 1 are .*b'7'"),
    "text": (PART.replace("3\t1\t", "3\tyes\t"), "result 1 are .*b'yes'"),
    "no document": (PART.replace("2\tb1", "2\t"), "result 1 are"),
    "empty": ("", "there is no result page"),
    "pages alone": ("9\t12\t\n4\t1\t\n", "there is no result page"),
}


@pytest.mark.parametrize("damage", BAIDU_DAMAGE)
def test_damaged_parts_are_one_sentence(damage, tmp_path):
    text, message = BAIDU_DAMAGE[damage]
    path = tmp_path / "part-00000"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        load_baidu_ultr(path)
    told = str(caught.value)
    assert told.startswith(f"{path} cannot be read as a part of Baidu-ULTR (")
    assert "\n" not in told


def test_parts_that_are_cut_or_in_another_encoding(part, tmp_path):
    part.write_bytes(part.read_bytes()[:-12])
    with pytest.raises(ValueError, match=r"part-00000\.gz cannot be read"):
        load_baidu_ultr(part)
    other = tmp_path / "part"
    other.write_text(PART, encoding="utf-16")
    with pytest.raises(ValueError, match="cannot be read"):
        load_baidu_ultr(other)
    other.write_bytes(PART.replace("a0", "é0").encode("latin-1"))
    with pytest.raises(ValueError, match="utf-8"):
        load_baidu_ultr(other)


def test_features_that_are_damaged(tmp_path):
    path = tmp_path / "part.feather"
    for change, message in {
        "lacks": "there is no column click, url_md5",
        "click": "result 1 are",
        "missing": "result 2 are",
        "bytes": "cannot be read as a part of Baidu-ULTR",
    }.items():
        table = features()
        if change == "lacks":
            table = table.drop(columns=["click", "url_md5"])
        elif change == "click":
            table["click"] = [0, 2, 0]
        elif change == "missing":
            table["position"] = [1, 2, None]
        table.to_feather(path)
        if change == "bytes":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(ValueError, match=message):
            load_baidu_ultr(path)


@pytest.mark.parametrize("path", [None, 3, [], [3], ["part-00000", None]])
def test_no_path(path):
    with pytest.raises(ValueError):
        load_baidu_ultr(path)
