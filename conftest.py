"""One thread per test worker: batches are small here, and threads that fight cost minutes."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
# What LightGBM and the workers of joblib go by.
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")
