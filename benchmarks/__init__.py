"""What skultr claims, measured: papers redrawn, studies behind the guide, time and memory.

``python -m benchmarks`` lists all pages. A page is a list of exhibits (tables and figures); an
exhibit shows the rows of a study, which is run in cells and seeds (`_study.py`), and says with a
verdict whether its claims hold (`_exhibit.py`). ``papers/`` redraws five papers, ``studies/`` has
what the pages of ``docs/studies`` quote, and ``speed/`` compares time and memory with the
plainest code.
"""
