"""Every work that users wait for, beside the plainest code that does it: ``make benchmarks``.

    python -m benchmarks speed [--only serving] [--cell training/trees] [--quick] [--out FOLDER]

A work is what is done, its peers, and the largest ratio that is allowed (`_work.py`). Ours and
the peers take turns on the same data in one process. A topic is an exhibit (`_page.py`), whose
study has a process of its own for the times of each work, and for the memory of each contender.
"""

import os

# Times of the processor compare code, not the number of threads that each library takes.
os.environ.setdefault("POLARS_MAX_THREADS", "1")


def __getattr__(name):
    """`PAGE`, made where it is asked for: the process of a work imports its own topic alone."""
    if name != "PAGE":
        raise AttributeError(name)
    from ._page import PAGE

    return PAGE
