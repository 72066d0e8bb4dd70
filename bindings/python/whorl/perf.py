"""Bus bandwidth of collectives on numpy arrays, in the manner of nccl-tests.

    python -m whorl.perf --ranks 2                    # processes of its own
    mpirun -n 4 python -m whorl.perf all_gather -e 64M   # those of a launcher

Every result is verified; a wrong element or a failure makes the exit status 1, a wrong option 2. The programs of
perf/ measure the library itself (docs/perf.md); the difference is what Python costs.
"""

from __future__ import annotations

import argparse
import errno
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

import whorl
from whorl._buffers import dtype_named
from whorl._types import kind_of

Array = np.ndarray[Any, Any]
UNWRITTEN = (errno.EPIPE, errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)
FAILURES = (whorl.Error, OSError, MemoryError, ValueError)
MAX_RANKS = 1024
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Form(NamedTuple):
    """Buffers of one form of an operation: separate ones, or one within the other."""

    send: Array
    recv: Array


class Case(NamedTuple):
    """Operation of one size on this rank."""

    run: Callable[[Array, Array], None]
    input: Array  # values to begin with
    expected: Array | None  # None: this rank has no result
    forms: tuple[Form | None, Form | None]  # with separate buffers, and in place


class Collective(NamedTuple):
    """Collective that can be measured."""

    case: Callable[[whorl.Communicator, int, np.dtype[Any], whorl.Op], Case]
    factor: Callable[[int], float]  # bus bandwidth / algorithm bandwidth
    divided: bool  # whether the size is that of all ranks' blocks together
    reduces: bool
    has_root: bool = False


def values(rank: int, count: int, dtype: np.dtype[Any]) -> Array:
    """Returns the input of a rank: zeros and ones, of which the sums are exact (inexact())."""
    array: Array = ((np.arange(count) + rank) % 2).astype(dtype)
    return array


def inexact(ranks: int, options: argparse.Namespace) -> str:
    """Returns why the results of a reduction cannot be verified, or nothing if they can be."""
    sums = COLLECTIVES[options.collective].reduces and options.op in ("sum", "avg")
    whole = np.arange((ranks + 1) // 2 + 1)  # values() of every second rank are 1
    if not sums or options.dtype == np.dtype(bool):
        return ""
    if np.array_equal(whole.astype(options.dtype).astype(np.float64), whole):
        return ""
    return (f"sums of {ranks} ranks are not exact in {options.dtype}, so the results cannot be verified: "
            f"take a wider type, or --op max")


def reduced(size: int, count: int, dtype: np.dtype[Any], op: whorl.Op) -> Array:
    """Returns the reduction of all ranks' inputs."""
    together = np.stack([values(rank, count, dtype) for rank in range(size)])
    wide = together.astype(np.int64 if dtype.kind in "iu" else np.float64)
    results: dict[whorl.Op, Callable[[], Array]] = {
        whorl.SUM: lambda: wide.sum(0), whorl.PROD: lambda: wide.prod(0), whorl.MAX: lambda: wide.max(0),
        whorl.MIN: lambda: wide.min(0),
        whorl.AVG: lambda: wide.sum(0) // size if dtype.kind in "iu" else wide.sum(0) / size,
    }
    result: Array = results[op]().astype(dtype)
    return result


def _case(run: Callable[[Array, Array], None], given: Array, expected: Array, in_place: tuple[slice, slice] | None,
          separate: bool = True, root: bool = True) -> Case:
    """Makes a case. `in_place` says where input and result are in the larger of the two; None: never in place."""
    apart, within = None, None
    if separate:
        send, recv = whorl.mem_alloc(given.size, given.dtype), whorl.mem_alloc(expected.size, given.dtype)
        apart = Form(send, recv)
    if in_place is not None:
        both = whorl.mem_alloc(max(given.size, expected.size), given.dtype)
        send, recv = both[in_place[0]], both[in_place[1]]
        within = Form(send, recv)
    return Case(run, given, expected if root else None, (apart, within))


ALL = slice(None)


def _all_reduce(comm: whorl.Communicator, count: int, dtype: np.dtype[Any], op: whorl.Op) -> Case:
    return _case(lambda a, b: comm.Allreduce(a, b, op), values(comm.rank, count, dtype),
                 reduced(comm.size, count, dtype, op), (ALL, ALL))


def _reduce(comm: whorl.Communicator, count: int, dtype: np.dtype[Any], op: whorl.Op) -> Case:
    return _case(lambda a, b: comm.Reduce(a, b, op), values(comm.rank, count, dtype),
                 reduced(comm.size, count, dtype, op), (ALL, ALL), root=comm.rank == 0)


def _broadcast(comm: whorl.Communicator, count: int, dtype: np.dtype[Any], op: whorl.Op) -> Case:
    return _case(lambda a, b: comm.Bcast(b), values(comm.rank, count, dtype), values(0, count, dtype), (ALL, ALL),
                 separate=False)


def _block(comm: whorl.Communicator, count: int) -> slice:
    return slice(comm.rank * count, (comm.rank + 1) * count)


def _all_gather(comm: whorl.Communicator, count: int, dtype: np.dtype[Any], op: whorl.Op) -> Case:
    return _case(lambda a, b: comm.Allgather(a, b), values(comm.rank, count, dtype),
                 np.concatenate([values(rank, count, dtype) for rank in range(comm.size)]), (_block(comm, count), ALL))


def _reduce_scatter(comm: whorl.Communicator, count: int, dtype: np.dtype[Any], op: whorl.Op) -> Case:
    total, block = count * comm.size, _block(comm, count)
    return _case(lambda a, b: comm.Reduce_scatter_block(a, b, op), values(comm.rank, total, dtype),
                 reduced(comm.size, total, dtype, op)[block], (ALL, block))


def _alltoall(comm: whorl.Communicator, count: int, dtype: np.dtype[Any], op: whorl.Op) -> Case:
    total, block = count * comm.size, _block(comm, count)
    return _case(lambda a, b: comm.Alltoall(a, b), values(comm.rank, total, dtype),
                 np.concatenate([values(rank, total, dtype)[block] for rank in range(comm.size)]), None)


def _sendrecv(comm: whorl.Communicator, count: int, dtype: np.dtype[Any], op: whorl.Op) -> Case:
    to, of = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    return _case(lambda a, b: comm.Sendrecv(a, to, recvbuf=b, source=of), values(comm.rank, count, dtype),
                 values(of, count, dtype), None)


COLLECTIVES = {
    "all_reduce": Collective(_all_reduce, lambda n: 2 * (n - 1) / n, False, True),
    "reduce": Collective(_reduce, lambda n: 1.0, False, True, True),
    "broadcast": Collective(_broadcast, lambda n: 1.0, False, False, True),
    "all_gather": Collective(_all_gather, lambda n: (n - 1) / n, True, False),
    "reduce_scatter": Collective(_reduce_scatter, lambda n: (n - 1) / n, True, True),
    "alltoall": Collective(_alltoall, lambda n: (n - 1) / n, True, False),
    "sendrecv": Collective(_sendrecv, lambda n: 1.0, False, False),
}


class Measured(NamedTuple):
    """Seconds of one operation, averaged over the ranks, and wrong elements of all ranks."""

    seconds: float
    wrong: int


def measure(comm: whorl.Communicator, case: Case, form: Form, iterations: int, warmup: int) -> Measured:
    """Measures one form of an operation, and verifies its first run; where the input stays, the last one, too."""
    form.recv[...] = 1
    form.send[...] = case.input
    wrong = 0

    def verify() -> int:
        return 0 if case.expected is None else int(np.count_nonzero(form.recv != case.expected))

    case.run(form.send, form.recv)
    wrong += verify()
    for _ in range(warmup):
        case.run(form.send, form.recv)
    if form is case.forms[0]:
        form.recv[...] = 1
    comm.barrier()
    begin = time.perf_counter()
    for _ in range(iterations):
        case.run(form.send, form.recv)
    seconds = (time.perf_counter() - begin) / iterations
    if form is case.forms[0]:
        wrong += verify()
    total, failed = comm.allreduce(np.array([seconds, wrong]))
    return Measured(float(total) / comm.size, int(failed))


def row(comm: whorl.Communicator, collective: Collective, nbytes: int, dtype: np.dtype[Any], op: whorl.Op,
        options: argparse.Namespace) -> tuple[str, int]:
    """Measures one size; returns the line of the table and the number of wrong elements."""
    blocks = comm.size if collective.divided else 1
    count = max(1, nbytes // dtype.itemsize // blocks)
    nbytes = count * blocks * dtype.itemsize
    case = collective.case(comm, count, dtype, op)
    cells, wrong = [], 0
    for form in case.forms:
        if form is None:
            cells.append(f"{'N/A':>8} {'N/A':>7} {'N/A':>7} {'N/A':>6}")
            continue
        result = measure(comm, case, form, options.iters, options.warmup)
        rate = nbytes / result.seconds / 1e9
        cells.append(f"{result.seconds * 1e6:8.2f} {rate:7.2f} {rate * collective.factor(comm.size):7.2f} "
                     f"{result.wrong:6d}")
        wrong += result.wrong
    redop = op.name.lower() if collective.reduces else "none"
    root = 0 if collective.has_root else -1
    return f"{nbytes:12d} {count:12d} {dtype.name:>13} {redop:>7} {root:6d}  {'  '.join(cells)}", wrong


def report(comm: whorl.Communicator, options: argparse.Namespace) -> int:
    """Prints the table on rank 0; returns the number of wrong elements."""

    def show(line: str) -> None:
        if comm.rank == 0:
            print(line, flush=True)

    collective, op = COLLECTIVES[options.collective], whorl.Op[options.op.upper()]
    show(f"# python -m whorl.perf {options.collective}: whorl {whorl.__version__}, numpy {np.__version__}")
    show(f"# {comm.describe()}")
    head = f"{'time':>8} {'algbw':>7} {'busbw':>7} {'#wrong':>6}"
    units = f"{'(us)':>8} {'(GB/s)':>7} {'(GB/s)':>7} {'':>6}"
    show(f"#{'':51}  {'out-of-place':^31}  {'in-place':^31}")
    show(f"#{'size':>11} {'count':>12} {'type':>13} {'redop':>7} {'root':>6}  {head}  {head}")
    show(f"#{'(B)':>11} {'(elements)':>12} {'':13} {'':7} {'':6}  {units}  {units}")
    wrong = 0
    for nbytes in options.sizes:
        line, bad = row(comm, collective, nbytes, options.dtype, op, options)
        show(line)
        wrong += bad
    show(f"# Out of bounds values : {wrong} {'OK' if wrong == 0 else 'FAILED'}")
    return wrong


def size_of(word: str) -> int:
    """Reads a size as 64, 8K or 1M."""
    number, unit = (word[:-1], word[-1].upper()) if word[-1:].isalpha() else (word, "")
    if unit not in UNITS or not number.isdigit():
        raise argparse.ArgumentTypeError(f"{word!r} is no size; sizes are as 8, 64K, 1M, 1G")
    size = int(number) * UNITS[unit]
    if size > sys.maxsize:
        raise argparse.ArgumentTypeError(f"{word!r} is more than the address space")
    return size


def dtype_of(word: str) -> np.dtype[Any]:
    """Reads the name of an element type."""
    name = {"float": "float32", "double": "float64", "half": "float16"}.get(word, word)
    try:
        dtype = dtype_named(name)
    except TypeError as error:
        raise argparse.ArgumentTypeError(f"there is no element type {word!r} here: {error}") from None
    kind = kind_of(dtype)
    if kind is None or kind.parts != 1:
        raise argparse.ArgumentTypeError(f"element type {word!r} cannot be measured")
    return dtype


def positive(word: str) -> int:
    """Reads a number from 1 on."""
    if not word.isdigit() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} must be a whole number from 1 on")
    return int(word)


def number_of_ranks(word: str) -> int:
    """Reads a number of processes."""
    if positive(word) > MAX_RANKS:
        raise argparse.ArgumentTypeError(f"{word!r} is more than {MAX_RANKS}")
    return int(word)


def collective_named(word: str) -> str:
    """Returns the collective that a word names; underscores do not matter. An unknown word is returned as it is."""
    return next((name for name in COLLECTIVES if name.replace("_", "") == word.replace("_", "")), word)


def sizes(begin: int, end: int, factor: int) -> Iterator[int]:
    """Yields the sizes of the table."""
    while begin <= end:
        yield begin
        begin *= factor


def parse(arguments: list[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m whorl.perf", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("collective", nargs="?", default="all_reduce", type=collective_named, choices=list(COLLECTIVES),
        metavar="collective", help=f"one of {', '.join(COLLECTIVES)}; default all_reduce")
    add("--version", action="version", version=f"%(prog)s {whorl.__version__}")
    add("--ranks", type=number_of_ranks,
        help="start so many processes; default: the ranks of the launcher, or 2 if there is one rank")
    add("-b", "--minbytes", type=size_of, default=8, help="first size, as 8 or 1K; default 8")
    add("-e", "--maxbytes", type=size_of, default=16 << 20, help="last size; default 16M")
    add("-f", "--stepfactor", type=positive, default=4, help="factor between sizes; default 4")
    add("-d", "--datatype", dest="dtype", type=dtype_of, default=np.dtype(np.float32),
        help="element type by numpy's name, or float, double, half; default float32")
    add("-o", "--op", default="sum", choices=["sum", "prod", "max", "min", "avg"], help="default sum")
    add("-n", "--iters", type=positive, default=20, help="operations that are timed; default 20")
    add("-w", "--warmup", type=positive, default=5, help="operations before; default 5")
    options = parser.parse_args(arguments)
    if options.stepfactor < 2 or options.minbytes < 1 or options.maxbytes < options.minbytes:
        parser.error("sizes must be at least 1, the last not below the first, and the factor at least 2")
    if options.dtype == np.dtype(bool) and options.op == "avg":
        parser.error("there is no average of bool")
    options.sizes = list(sizes(options.minbytes, options.maxbytes, options.stepfactor))
    return options


def sentence_of(error: BaseException) -> str:
    """Returns a failure in words; nothing where whoever read the table has gone, as `head` does."""
    if not isinstance(error, OSError) or error.errno not in UNWRITTEN:
        return str(error) or type(error).__name__
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what could not be written is not tried again at the end
    return "" if error.errno == errno.EPIPE else f"cannot write the output: {error.strerror}"


def failed(sentence: str, status: int = 1) -> int:
    """Prints a sentence; returns the exit status."""
    if sentence:
        print(f"python -m whorl.perf: {sentence}", file=sys.stderr)
    return status


def _rank(unique_id: bytes, size: int, rank: int, options: argparse.Namespace, pipe: Connection) -> None:
    try:
        with whorl.Communicator(unique_id, size, rank) as comm:
            pipe.send(report(comm, options))
    except FAILURES as error:
        pipe.send((isinstance(error, whorl.RemoteError), sentence_of(error)))


def answer_of(pipe: Connection, rank: int, exitcode: int | None) -> int | tuple[bool, str]:
    """Returns the number of wrong elements that a rank has found, or whether it failed because of another, and how."""
    try:
        answer: int | tuple[bool, str] = pipe.recv()
    except EOFError:
        return False, f"rank {rank} has ended with status {exitcode}"
    return answer


def start(options: argparse.Namespace, ranks: int) -> int:
    """Runs the table on processes of its own; returns the exit status."""
    reason = inexact(ranks, options)
    if reason:
        return failed(reason, 2)
    context = multiprocessing.get_context("spawn")
    unique_id = whorl.unique_id()
    processes, pipes = [], []
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the ranks, which this process ends
    try:
        for rank in range(ranks):
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_rank, args=(unique_id, ranks, rank, options, theirs), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(mine)
    finally:
        signal.signal(signal.SIGINT, handler)
    for process in processes:
        process.join()
    answers = [answer_of(pipe, rank, processes[rank].exitcode) for rank, pipe in enumerate(pipes)]
    failures = [answer for answer in answers if isinstance(answer, tuple)]
    if failures:
        return failed(min(failures, key=lambda failure: failure[0])[1])  # a cause before what it led to
    return 1 if answers[0] else 0


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; returns the exit status."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        if options.ranks is not None:
            return start(options, options.ranks)
        with whorl.init() as comm:
            reason = inexact(comm.size, options)
            if reason:
                return failed(reason if comm.rank == 0 else "", 2)
            if comm.size > 1:
                return 1 if report(comm, options) else 0
        return start(options, 2)
    except FAILURES as error:
        return failed(sentence_of(error))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
