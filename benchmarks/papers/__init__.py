"""Five papers, redrawn: ``make papers``."""
