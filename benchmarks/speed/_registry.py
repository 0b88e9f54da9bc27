"""All works, by topic. A topic is a module of this folder with a tuple ``WORKS``."""

from importlib import import_module

TOPICS = ("serving", "training", "logs", "estimation", "evaluation", "searches")


def works(topics=TOPICS):
    """Works in the order of the page."""
    return [work for topic in topics for work in import_module(f".{topic}", __package__).WORKS]


def find(name):
    """The work of that name; other topics are not imported."""
    (work,) = (work for work in works([name.split("/")[0]]) if work.name == name)
    return work
