"""One thread a test worker: batches are small here, and threads that fight cost minutes."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
