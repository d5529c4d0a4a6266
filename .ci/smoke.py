"""An installed package, away from the sources: one solve, with all that an installation has to bring."""

from importlib.resources import files

import rcurc_gpu as rg

problem = rg.synthetic((300, 200), rank=2, alpha=0.1, n_rows=80, n_cols=80, rate=0.5, seed=0)
result = rg.rcurc(problem.samples)
assert result.converged, result.message
assert problem.relative_error(result.cur) < 1e-8
assert (files("rcurc_gpu") / "py.typed").is_file()
assert (files("rcurc_gpu.kernels") / "regress.cu").is_file()
print(rg.__version__, rg.__file__)
