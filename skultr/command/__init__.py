"""The command ``skultr``: what a log holds, and what the log of a search engine supports."""
