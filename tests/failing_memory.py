"""Memory of a device that fails when it is told to."""

import cupy


class Failing:
    """An allocator that fails at its n-th call."""

    def __init__(self, n):
        self.pool, self.n, self.calls = cupy.get_default_memory_pool(), n, 0

    def __call__(self, size):
        self.calls += 1
        if self.calls == self.n:
            raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0)
        return self.pool.malloc(size)

    def __enter__(self):
        cupy.cuda.set_allocator(self)
        return self

    def __exit__(self, *error):
        cupy.cuda.set_allocator(self.pool.malloc)
