"""Doctests are in the guide's .rst files, not in what Sphinx built or reads."""

collect_ignore = ["conf.py", "_build", "auto_examples", "generated", "sg_execution_times.rst"]
