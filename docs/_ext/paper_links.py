"""A link from each docstring that cites one of the five papers to the page that redraws it."""

#: Words of the title, as references write them -> page.
PAGES = {
    "identifiability matters": "identifiability",
    "addressing personalized bias": "user_aware",
    "scalar is not enough": "vectorization",
    "causal likelihood decomposition": "cld",
    "offline metric for the debiasedness": "cmip",
}


def pages_of(docstring):
    """Pages of the papers that a docstring cites."""
    text = " ".join(docstring.split()).lower()
    return [page for title, page in PAGES.items() if title in text]


def add_links(app, what, name, obj, options, lines):
    """Append the links; Sphinx calls this for each docstring."""
    pages = pages_of("\n".join(lines)) if what in ("class", "function") else []
    if pages:
        lines += ["", ".. seealso::", ""]
        lines += [f"   :doc:`The paper, redrawn </papers/{page}>`" for page in pages]
        lines += [""]


def setup(app):
    """Run after numpydoc, which rewrites the lines."""
    app.connect("autodoc-process-docstring", add_links, priority=900)
    return {"parallel_read_safe": True}
