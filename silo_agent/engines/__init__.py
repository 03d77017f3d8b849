"""Sums of clipped gradients: several ways to compute the same numbers, each the oracle of the others."""

import os

# Intel's BLAS adds up in an order that depends on where in memory a row lies, unless asked not to: what a
# record's gradient is, to the last bit, would depend on who else was drawn. It reads this when it is first
# called, and not again; an operator's own choice stands.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
# As Intel's, cuBLAS adds in one order only if asked before its first call.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
