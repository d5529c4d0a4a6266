"""What the tests share: the namespaces to run on, and how hypothesis works."""

import os
from typing import Any, NamedTuple

# The products here are small: a second BLAS thread gains nothing, and on a busy machine the two wait for each other for
# seconds. Before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import array_api_strict
import numpy as np
import pytest
from hypothesis import settings

from rcurc_gpu.backend import array_namespace, device_of, to_numpy

settings.register_profile("rcurc", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("rcurc")


class Place(NamedTuple):
    """A namespace and a device of it."""

    namespace: Any
    device: Any

    def array(self, x: Any, dtype: str | None = None) -> Any:
        """A copy of `x` here, never an alias; `dtype` by its name."""
        host = np.array(x, dtype=dtype)
        return self.namespace.asarray(host, device=self.device)

    def numpy(self, x: Any) -> np.ndarray:
        """`x` on the host, after a look that it lives here."""
        assert array_namespace(x).__name__.removeprefix("array_api_compat.") == self.namespace.__name__
        assert device_of(x) == self.device
        return to_numpy(x)


NUMPY = Place(np, "cpu")
# Not the default device of array_api_strict: an array that is made without a device, or comes to the host unasked, fails.
STRICT = Place(array_api_strict, array_api_strict.Device("device1"))


@pytest.fixture(scope="session", params=[NUMPY, STRICT], ids=["numpy", "strict"])
def xp(request: pytest.FixtureRequest) -> Place:
    """Where to compute: NumPy, and the strict array API on a device of its own."""
    return request.param
