"""Settings of the whole suite; must run before numpy is imported."""

import os

# Several test processes share two cores: BLAS threads of their own only get in each other's way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
