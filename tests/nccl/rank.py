"""One rank of a ctypes client of NCCL, and the checks of its scenarios."""
import ctypes
import math
import pathlib
import time
from collections.abc import Callable

from element_types import FLOAT32, ElementType
from pynccl import Comm, Library, NcclError, UniqueId

RANKS = 4
SUM, PROD, MAX, MIN, AVG = range(5)
INVALID_ARGUMENT, INVALID_USAGE, IN_PROGRESS = 4, 5, 7
DEADLINE_S = 60.0


class Rank:
    """One rank: the library, a communicator, and blocking calls on lists of numbers."""

    def __init__(self, rank: int, folder: pathlib.Path) -> None:
        self.nccl = Library()
        self.rank, self.folder = rank, folder
        self.comm = self.join("world", RANKS, rank)

    def exchange_id(self, name: str, root: bool) -> UniqueId:
        """Makes an id on one rank; the others read it."""
        unique_id, path = UniqueId(), self.folder / name
        if root:
            self.nccl.ncclGetUniqueId(ctypes.byref(unique_id))
            draft = path.with_suffix(".draft")
            draft.write_bytes(bytes(unique_id))
            draft.rename(path)
            return unique_id
        end = time.monotonic() + DEADLINE_S
        while not path.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"no id appeared in {path}")
            time.sleep(0.002)
        return UniqueId.from_buffer_copy(path.read_bytes())

    def join(self, name: str, nranks: int, rank: int) -> Comm:
        """Creates a communicator with the id of this name."""
        comm = Comm()
        self.nccl.ncclCommInitRank(ctypes.byref(comm), nranks, self.exchange_id(name, rank == 0),
                                   rank)
        return comm

    def all_reduce(self, values: list, element: ElementType = FLOAT32, op: int = SUM,
                   comm: Comm | None = None, stream: int | None = None) -> list:
        """Returns the reduced elements."""
        out = buffer(element, [0] * len(values))
        self.nccl.ncclAllReduce(buffer(element, values), out, len(values), element.number, op,
                                comm or self.comm, stream)
        return element.decode(out.raw)


def buffer(element: ElementType, values: list) -> ctypes.Array:
    """Returns memory that holds these elements."""
    data = element.encode(values)
    return ctypes.create_string_buffer(data, len(data))


def expect(actual: object, wanted: object, what: str) -> None:
    """Fails with both values."""
    if actual != wanted:
        raise AssertionError(f"{what}: got {str(actual):.200}, wanted {str(wanted):.200}")


def fails(code: int, call: Callable[[], object], *words: str) -> str:
    """Checks that the call returns this code, and that the sentence has these words."""
    try:
        call()
    except NcclError as error:
        expect(error.code, code, f"code of {error}")
        for word in words:
            if word not in error.text:
                raise AssertionError(f"{word!r} is not in {error.text!r}") from error
        return error.text
    raise AssertionError(f"the call succeeded; {code} was expected")


def reference(op: int, columns: list[list], element: ElementType) -> list:
    """Returns the reduction of the ranks' elements."""
    functions = {SUM: sum, PROD: math.prod, MAX: max, MIN: min,
                 AVG: lambda v: sum(v) // len(v) if element.integer else sum(v) / len(v)}
    return [functions[op](column) for column in zip(*columns)]
