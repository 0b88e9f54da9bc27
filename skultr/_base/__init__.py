"""What every folder imports: types, lazy names, threads, progress, scikit-learn's private ones."""
