"""How often a GPU would execute the machine instructions of a kernel, without a GPU.

Marks are put at the beginning of every loop and branch of a CUDA source that the compiler does not unroll. The emulator
(tests/hostgpu) counts how often each warp gets there. NVRTC compiles the same text, where a mark is an instruction that does
nothing (PMTRIG), and ``nvdisasm`` (the package nvidia-cuda-nvdisasm, in the extra "emulator") lists the instructions: those
of a piece of straight code are executed as often as the mark in it, or the one before it in the same loop. A mark that the
compiler copied is shared by its copies. Not counted: what is called (the rare paths of divisions) and what is only there for
warps whose lanes have diverged.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, NamedTuple

_HEAD = re.compile(r"^\s*(?:\} )?(for \(|while \(|if \(|else if \(|else \{)")
_LOOP = re.compile(r"^\s*(for|while) \(")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_LABEL = re.compile(r"^(\.?[\w.$]+):$")
_TARGET = re.compile(r"`\(([^)]+)\)")
_FUNCTION = 2048  # marks of functions are their lines and this: a mark of a loop or branch in the same piece says more
_LONG = 5  # lines from which a function is marked: it may be inlined where it is hardly ever needed


def marked(text: str) -> str:
    """A CUDA source with MARK(line) in every loop and branch that is not unrolled, and in functions of some length."""
    out: list[str] = []
    lines = text.splitlines()
    unrolled: list[bool] = []  # of each open brace
    decided: list[bool] = []  # of each open brace: whether the compiler knows if it gets there
    pending = False
    for number, line in enumerate(lines, 1):
        out.append(line)
        code = line.split("//")[0].rstrip()
        if code.lstrip().startswith("#pragma unroll"):
            pending = code.endswith("unroll")  # wholly: loops that are unrolled in part are loops still
            continue
        if not code or code.lstrip().startswith("#"):
            continue
        within = any(unrolled)
        known = "if constexpr" in code
        for _ in range(min(code.count("}"), len(unrolled))):
            unrolled.pop()
            known |= decided.pop() and "else" in code
        opened, is_loop = code.count("{"), _LOOP.match(code) is not None
        unrolled += [pending and is_loop] * opened
        decided += [known] * opened
        if opened and code.endswith("{") and _HEAD.match(code) and not (unrolled[-1] or known) and (is_loop or not within):
            out[-1] += f" MARK({number});"
        if code.endswith("{") and "__device__" in code and _length(lines, number) >= _LONG:
            out[-1] += f" MARK({_FUNCTION + number});"
        pending = False
    return "\n".join(out)


def _length(lines: list[str], number: int) -> int:
    """Lines from a brace to the one that closes it."""
    depth = 0
    for n, line in enumerate(lines[number - 1 :]):
        depth += line.count("{") - line.count("}")
        if depth == 0:
            return n
    return 0


class Block(NamedTuple):
    """Straight code: how many instructions, its marks, and where it goes on."""

    size: int
    marks: tuple[int, ...]
    after: tuple[int, ...]


@cache
def disassembler() -> Path:
    """The program `nvdisasm` of its package."""
    try:
        found = files("nvidia-cuda-nvdisasm") or []
    except PackageNotFoundError as error:
        raise RuntimeError("nvdisasm is not there: pip install nvidia-cuda-nvdisasm") from error
    return Path(str(next(path.locate() for path in found if path.name == "nvdisasm")))


def disassembled(text: str, options: tuple[str, ...], architecture: int) -> str:
    """The machine code that NVRTC makes of a marked source."""
    from cupy_backends.cuda.libs import nvrtc

    mark = '#define MARK(n) asm volatile("pmevent.mask %0;" ::"n"(n))\n#line 1\n'
    program = nvrtc.createProgram(mark + text, "kernel.cu", (), ())
    try:
        nvrtc.compileProgram(program, (*options, "-ftz=true", f"-arch=sm_{architecture}"))
        binary = nvrtc.getCUBIN(program) + bytes(1)  # CuPy takes the last byte for the end of a text
    finally:
        nvrtc.destroyProgram(program)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(binary)
        return subprocess.run([disassembler(), "-c", path], capture_output=True, text=True, check=True).stdout


def blocks_of(listing: str, kernel: str) -> list[Block]:
    """The flow of control of a kernel, the first block first."""
    lines = listing.partition(f".text.{kernel}:\n")[2].splitlines()
    code: list[tuple[str, str, str]] = []  # predicate, operation, operands
    labels: dict[str, int] = {}
    for line in lines:
        if line.startswith("//---"):
            break
        if named := _LABEL.match(line.strip()):
            labels[named[1]] = len(code)
        elif found := _INSTRUCTION.match(line):
            code.append((found[1] or "", found[2], found[3]))
    joins: dict[str, int] = {}
    goes: dict[int, tuple[int | None, bool]] = {}  # instruction -> where it jumps, and whether it may go on
    for n, (predicate, operation, operands) in enumerate(code):
        target = _TARGET.search(operands)
        there = labels.get(target[1]) if target else None
        name = operation.split(".")[0]
        if name == "BSSY" and there is not None:
            joins[operands.split(",")[0]] = there
        elif name == "BRA" and not operation.startswith("BRA.DIV"):
            sure = not predicate and not operands.strip().startswith(("P", "!P", "UP", "!UP"))
            goes[n] = (there, not sure)
        elif name == "BSYNC":
            goes[n] = (joins.get(operands.split(",")[0]), bool(predicate))
        elif name in ("EXIT", "RET"):
            goes[n] = (None, bool(predicate))
    starts = sorted({0, *labels.values(), *(n + 1 for n in goes)} & set(range(len(code))))
    place = {start: number for number, start in enumerate(starts)}
    found_blocks = []
    for start, stop in zip(starts, [*starts[1:], len(code)], strict=True):
        marks = tuple(int(code[n][2], 0) for n in range(start, stop) if code[n][1] == "PMTRIG")
        jump, goes_on = goes.get(stop - 1, (None, True))
        after = [place[n] for n in (jump, stop if goes_on else None) if n is not None and n in place]
        found_blocks.append(Block(stop - start - len(marks), marks, tuple(after)))
    return found_blocks


def _before(after: dict[int, tuple[int, ...]]) -> dict[int, set[int]]:
    """The other direction of a graph."""
    before: dict[int, set[int]] = {n: set() for n in after}
    for n, following in after.items():
        for m in following:
            before[m].add(n)
    return before


def _dominators(after: dict[int, tuple[int, ...]], root: int) -> dict[int, set[int]]:
    """Of each node that can be reached from the root: those that every way to it goes through."""
    reached, todo = {root}, [root]
    while todo:
        for n in after[todo.pop()]:
            if n not in reached:
                reached.add(n)
                todo.append(n)
    before = _before({n: tuple(m for m in after[n] if m in reached) for n in reached})
    found = {n: set(reached) for n in reached} | {root: {root}}
    changed = True
    while changed:
        changed = False
        for n in sorted(reached - {root}):
            new = set.intersection(*(found[m] for m in before[n])) | {n}
            changed |= new != found[n]
            found[n] = new
    return found


def _loops(blocks: list[Block], over: dict[int, set[int]]) -> dict[int, set[int]]:
    """First block of each loop -> all its blocks."""
    before = _before({n: blocks[n].after for n in over})
    loops: dict[int, set[int]] = {}
    for n in over:
        for first in set(blocks[n].after) & over[n]:
            body, todo = loops.setdefault(first, {first}), [n]
            while todo:
                m = todo.pop()
                if m not in body:
                    body.add(m)
                    todo += before[m]
    return loops


def executed(blocks: list[Block], hits: dict[int, float]) -> dict[int, float]:
    """Executed instructions by the mark of the loop or branch that they belong to; 0 stands for what is in none."""
    over = _dominators({n: block.after for n, block in enumerate(blocks)}, 0)
    loops, end = _loops(blocks, over), len(blocks)
    ways = {n: tuple(m for m in blocks[n].after) or (end,) for n in over} | {end: ()}
    under = _dominators({n: tuple(before) for n, before in _before(ways).items()}, end)
    sites: dict[int, int] = {}
    for n in over:
        for mark in blocks[n].marks:
            sites[mark] = sites.get(mark, 0) + 1
    inner = {
        n: min((loop for loop in loops if n in loops[loop]), key=lambda loop: len(loops[loop]), default=-1) for n in over
    }

    def most(marks: Iterable[int]) -> int:
        return max(marks, key=lambda mark: hits.get(mark, 0) / sites[mark], default=0)

    @cache
    def mark_of(n: int) -> int:
        """The mark that says how often block n is executed."""
        sure = [mark for mark in blocks[n].marks if mark < _FUNCTION]
        if sure:
            return most(sure)
        up = [m for m in sorted(over[n] - {n}, key=lambda m: -len(over[m])) if inner[m] == inner[n]]  # the nearest first
        for m in up:
            if n in under.get(m, ()):  # whoever comes through m comes here
                return mark_of(m)
        if blocks[n].marks:
            return most(blocks[n].marks)
        if up:
            return mark_of(up[0])
        return most(
            mark for m in loops.get(inner[n], ()) if inner[m] == inner[n] for mark in blocks[m].marks if mark < _FUNCTION
        )

    total: dict[int, float] = {}
    for n in over:
        mark = mark_of(n)
        total[mark] = total.get(mark, 0.0) + blocks[n].size * (hits.get(mark, 0) / sites[mark] if mark else 1.0)
    return total


def count(
    text: str, options: tuple[str, ...], kernel: str, hits: dict[int, float], architecture: int = 90
) -> dict[int, float]:
    """Executed instructions of all warps together, by marks, for a marked source."""
    return executed(blocks_of(disassembled(text, options, architecture), kernel), hits)


COUNTERS: Any = """
#define MARK(n) cuh_hit(n)
extern "C" long long cuh_hits[4096][128] = {};
extern "C" long long cuh_counts[5][128] = {};  // of each thread: shuffles, votes, barriers, shared, global
extern "C" const char *cuh_global[64][2] = {};  // where arrays in global memory begin and end
#define UNCOUNTED __attribute__((no_sanitize_address, no_sanitize("kernel-address")))
UNCOUNTED static inline void cuh_hit(int n) { cuh_hits[n][threadIdx.x]++; }
UNCOUNTED static inline void cuh_note(int what) { cuh_counts[what][threadIdx.x]++; }
UNCOUNTED static void cuh_touch(const char *p) {
    const char *here = static_cast<const char *>(__builtin_frame_address(0));
    if (p > here - (1 << 12) && p < here + (1 << 14)) return;  // the stack: a register
    bool global = false;
    for (int n = 0; n < 64 && cuh_global[n][0]; n++) global |= p >= cuh_global[n][0] && p < cuh_global[n][1];
    cuh_note(global ? 4 : 3);
}
#define TOUCH(name) extern "C" UNCOUNTED void __asan_##name##_noabort(void *p) { cuh_touch(static_cast<char *>(p)); }
TOUCH(load1) TOUCH(load2) TOUCH(load4) TOUCH(load8) TOUCH(load16)
TOUCH(store1) TOUCH(store2) TOUCH(store4) TOUCH(store8) TOUCH(store16)
extern "C" UNCOUNTED void __asan_loadN_noabort(void *p, size_t) { cuh_touch(static_cast<char *>(p)); }
extern "C" UNCOUNTED void __asan_storeN_noabort(void *p, size_t) { cuh_touch(static_cast<char *>(p)); }
extern "C" UNCOUNTED void __asan_handle_no_return() {}
#undef __shfl_sync
#undef __shfl_xor_sync
#undef __shfl_down_sync
#undef __ballot_sync
#undef __any_sync
#undef __syncwarp
#undef __syncthreads
#undef __syncthreads_or
#define __shfl_sync(...) (cuh_note(0), ::cuh::shfl(__LINE__, __VA_ARGS__))
#define __shfl_xor_sync(...) (cuh_note(0), ::cuh::shfl_xor(__LINE__, __VA_ARGS__))
#define __shfl_down_sync(...) (cuh_note(0), ::cuh::shfl_down(__LINE__, __VA_ARGS__))
#define __ballot_sync(mask, p) (cuh_note(1), ::cuh::ballot(__LINE__, (mask), !!(p), "__ballot_sync"))
#define __any_sync(mask, p) (cuh_note(1), ::cuh::ballot(__LINE__, (mask), !!(p), "__any_sync") != 0)
#define __syncwarp() (cuh_note(2), ::cuh::WarpBarrier{__LINE__}())
#define __syncthreads() (cuh_note(2), (void)::cuh::sync_block(__LINE__, ::cuh::Vote::none, 0))
#define __syncthreads_or(p) (cuh_note(2), ::cuh::sync_block(__LINE__, ::cuh::Vote::any, !!(p)))
#line 1
"""
FLAGS = ("-fsanitize=kernel-address", "--param", "asan-instrumentation-with-call-threshold=0", "--param", "asan-stack=0",
         "--param", "asan-globals=0")  # fmt: skip
NAMES = ("shuffles", "votes", "barriers", "shared", "global")
