"""Every work that users wait for, beside the plainest code that does it: ``make benchmarks``.

A work is a line of a registry (`_registry.py`): what is done, its peers, and the largest ratio
that is allowed. `_measure.py` lets ours and the peers take turns on the same data in one process,
`__main__.py` gives each work a process of its own, `_report.py` writes ratios and machine, and
`_figure.py` draws them.
"""
