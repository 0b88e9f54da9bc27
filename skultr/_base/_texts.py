"""Texts of queries, compared as users mean them."""

import unicodedata


def normal_text(text: str) -> str:
    """A query as equal ones are written: Unicode NFKC, lower case, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
