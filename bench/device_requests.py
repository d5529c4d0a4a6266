"""What a solve asks of a GPU, by the lines of Python that ask for it: launches, copies and calls of libraries.

Counted on the emulator, not timed. Run as ``python -m bench.device_requests [--size 500] [--rank 5] [--top 40]``.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))  # where hostgpu is

# What counts apart: the iterations of the core, and the check whether it is identified, begin in these functions.
PHASES = {"solve_core": "core", "_head_start": "core", "core_ties": "ties"}


def _asked_by(depth: int) -> tuple[str, str]:
    """The phase, and the innermost lines of the library, the first of them outside of `backends`."""
    frame, lines, phase = sys._getframe(2), [], "rest"
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(str(ROOT / "rcurc_gpu")):
            if phase == "rest":
                phase = PHASES.get(frame.f_code.co_name, "rest")
            lines.append(f"{Path(name).relative_to(ROOT / 'rcurc_gpu')}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    outside = next((k for k, line in enumerate(lines) if not line.startswith("backends")), 0)
    return phase, " < ".join(lines[max(outside - 1, 0) : outside + depth])


class Requests:
    """Listens to the emulator.

    Attributes
    ----------
    launches, to_host : Counter
        By phase and lines: launches (of kernels, graphs and libraries), and bytes.
    """

    def __init__(self, depth: int = 3) -> None:
        self.depth, self.launches, self.to_host, self.copies = depth, Counter(), Counter(), Counter()
        self.kernels: Counter = Counter()

    def __call__(self, what: str, number: int) -> None:
        """What `hostgpu.set_listener` calls."""
        key = _asked_by(self.depth)
        if number < 0:
            self.launches[key] += 1
            self.kernels[key[0], what] += 1
        elif what == "d2h":
            self.to_host[key] += number
            self.copies[key[0]] += 1

    def of(self, phase: str) -> tuple[int, int]:
        """Launches and bytes of a phase."""
        return tuple(sum(n for key, n in x.items() if key[0] == phase) for x in (self.launches, self.to_host))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=500)
    parser.add_argument("--rank", type=int, default=5)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--top", type=int, default=40, help="lines that are shown")
    given = parser.parse_args()
    import hostgpu

    hostgpu.install()
    import cupy

    import rcurc_gpu as rg

    some = int(0.3 * given.size)
    problem = rg.synthetic(
        (given.size, given.size), given.rank, 0.2, 10, n_rows=some, n_cols=some, rate=0.25, seed=given.seed
    )
    samples = problem.samples.to_namespace(cupy)
    listener = Requests()
    hostgpu.reset_stats()
    hostgpu.set_listener(listener)
    result = rg.rcurc(samples, given.rank)
    hostgpu.set_listener(None)
    stats = hostgpu.stats()
    print(f"error {problem.relative_error(result.cur):.1e}, {result.message}")
    print({k: stats[k] for k in ("launches", "graph_launches", "d2h_bytes", "d2h_copies", "h2d_copies", "synchronizations")})
    print(stats["library_calls"])
    print({name: n for (phase, name), n in listener.kernels.items() if phase == "rest"})
    for phase in ("core", "ties", "rest"):
        print(
            f"\n{phase}: {listener.of(phase)[0]} launches, {listener.of(phase)[1]} bytes in {listener.copies[phase]} copies"
        )
        for (_, line), n in [x for x in listener.launches.most_common() if x[0][0] == phase][: given.top]:
            print(f"{n:5d}  {line}")
        print("  bytes to the host:")
        for (_, line), n in [x for x in listener.to_host.most_common() if x[0][0] == phase][: given.top]:
            print(f"{n:7d}  {line}")


if __name__ == "__main__":
    main()
