"""Cases to measure, each a collective on a number of ranks, and how long each may take."""
import dataclasses

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "alltoall",
               "barrier")


def collective_named(word):
    """Returns the collective that a word names; underscores do not matter. An unknown word is returned as it is."""
    return next((name for name in COLLECTIVES if name.replace("_", "") == word.replace("_", "")), word)


def size(word):
    """Returns the number of bytes that a word such as 8, 64K or 1m names."""
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    unit = units.get(word[-1:].lower())
    return int(word[:-1]) * unit if unit else int(word)


SHM, TCP, HOSTS = "shm", "tcp", "hosts"
WHERE = {SHM: "one host, shared memory", TCP: "one host, TCP over loopback",
         HOSTS: "two network namespaces joined by veth, shared memory inside them"}

K, M = 1 << 10, 1 << 20
SMALL = (8, 64, 256, K)
MIDDLE = (8 * K, 64 * K, 512 * K, M)
LARGE = (8 * M, 64 * M)
ODD = (100, 5020, 300044, 5000012)
BRIEF = (8, K, 8 * K, 64 * K, M, 8 * M)


def sizes(*parts):
    return tuple(sorted({size for part in parts for size in part}))


@dataclasses.dataclass(frozen=True)
class Case:
    where: str
    collective: str
    ranks: int
    mode: str = "dirty"
    sizes: tuple = ()
    share: float = 1     # share of the whole plan's time
    rounds: int = 2      # minimum number of rounds

    def key(self):
        return self.where, self.collective, self.ranks, self.mode

    @property
    def side(self):
        # MPI broadcasts in place only; with two buffers its root would have to copy, too.
        return "in" if self.collective == "broadcast" else "out"


def quick():
    out = [Case(SHM, "all_reduce", 2, sizes=sizes(SMALL, MIDDLE, LARGE), share=5)]
    out += [Case(SHM, "all_reduce", 4, sizes=(8, K, 64 * K, M), share=1, rounds=1)]
    out += [Case(SHM, name, 2, sizes=(8, K, 64 * K, M), share=1, rounds=1)
            for name in COLLECTIVES[1:]]
    return out


def ordinary():
    out = [Case(SHM, "all_reduce", ranks, sizes=sizes(SMALL, MIDDLE, LARGE, ODD[1:3]), share=6,
                rounds=3) for ranks in (2, 4)]
    out += [Case(SHM, name, 2, sizes=sizes(BRIEF, (64 * M,)), share=2) for name in COLLECTIVES[1:]]
    out += [Case(HOSTS, "all_reduce", ranks, sizes=sizes(BRIEF, (512 * K,)), share=2)
            for ranks in (2, 4)]
    return out


def full():
    everything = sizes(SMALL, MIDDLE, LARGE, ODD)
    out = []
    for name in COLLECTIVES:
        for ranks in (2, 4, 8, 16):
            largest = () if ranks > 4 else LARGE if name != "all_reduce" else LARGE + (256 * M,)
            out.append(Case(SHM, name, ranks, share=4 if ranks == 2 else 2, rounds=3,
                            sizes=sizes(SMALL, MIDDLE, ODD, LARGE[:1], largest)))
        out += [Case(SHM, name, 2, mode, sizes=sizes(BRIEF, (64 * M,)))
                for mode in ("warm", "cold")]
        out += [Case(TCP, name, 2, sizes=sizes(SMALL, MIDDLE, LARGE))]
        out += [Case(HOSTS, name, ranks, sizes=everything if ranks == 2 else BRIEF)
                for ranks in (2, 4, 8)]
    return out


def chosen(args):
    """Returns the cases of a command line that names some."""
    where = SHM if not (args.tcp or args.hosts) else HOSTS if args.hosts else TCP
    picked = args.sizes or sizes(SMALL, MIDDLE, LARGE, ODD)
    return [Case(where, collective, ranks, mode, picked, rounds=args.rounds or 2)
            for collective in args.collectives or ("all_reduce",)
            for ranks in args.ranks or ((2, 4) if where != TCP else (2,))
            for mode in args.modes]
