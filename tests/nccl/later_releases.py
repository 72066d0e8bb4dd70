"""Scenarios of client.py with functions that NCCL has since release 2.32."""
import ctypes
import itertools

from element_types import FLOAT32
from pynccl import CONFIGURED, CollConfig, EncryptionConfig, Team
from rank import INVALID_ARGUMENT, INVALID_USAGE, RANKS, SUM, Rank, buffer, expect, fails


def options_of_calls(self: Rank) -> None:
    """Tests every collective with options of its own: ignored ones and refused ones."""
    nccl, ranks, length = self.nccl, range(RANKS), 256
    mine, whole = [self.rank * RANKS + i for i in ranks], list(range(RANKS * RANKS))
    columns = [sum(whole[i::RANKS]) for i in ranks]
    at_two = self.rank == 2
    calls: dict[str, tuple[tuple, list | None]] = {
        "AllReduce": ((RANKS, 7, SUM), columns), "Broadcast": ((RANKS, 7, 2), [8, 9, 10, 11]),
        "Reduce": ((RANKS, 7, SUM, 2), columns if at_two else None),
        "AllGather": ((RANKS, 7), whole), "ReduceScatter": ((1, 7, SUM), [columns[self.rank]]),
        "AlltoAll": ((1, 7), whole[self.rank::RANKS]),
        "Gather": ((RANKS, 7, 2), whole if at_two else None),
        "Scatter": ((1, 7, 2), [8 + self.rank])}
    expect(tuple(calls), CONFIGURED, "the collectives that take options")

    longer = (ctypes.c_char * length)(*b"\xff" * length)
    ctypes.memmove(longer, ctypes.byref(CollConfig(size=length)), ctypes.sizeof(CollConfig))
    wishes = {"minCTAs": 2, "maxCTAs": 4, "nvlsCTAs": 1, "cgaClusterSize": 2, "CTAPolicy": 3,
              "userProfilerTag": 2**63 + 1}
    shorter = CollConfig(size=CollConfig.algSelection.offset, algSelection=b"Ring", CTAPolicy=99)
    accepted = [None, ctypes.pointer(CollConfig()), ctypes.pointer(CollConfig(**wishes)),
                ctypes.pointer(CollConfig(algSelection=b"")), ctypes.pointer(shorter),
                ctypes.pointer(CollConfig(algSelection=b"Ring", forceAlgSelection=0)),
                ctypes.cast(longer, ctypes.POINTER(CollConfig))]
    for (name, (arguments, wanted)), config in itertools.product(calls.items(), accepted):
        out = buffer(FLOAT32, [-1] * RANKS * RANKS)
        getattr(nccl, f"nccl{name}Config")(buffer(FLOAT32, mine), out, *arguments, self.comm, None,
                                           config)
        if wanted is not None:
            expect(FLOAT32.decode(out.raw)[:len(wanted)], wanted, f"{name} with options")

    for name, (code, options, word) in itertools.product(calls, (
            (INVALID_ARGUMENT, {"magic": 1}, "NCCL_COLLCONFIG_INITIALIZER"),
            (INVALID_ARGUMENT, {"size": 8}, "NCCL_COLLCONFIG_INITIALIZER"),
            (INVALID_ARGUMENT, {"forceAlgSelection": 2}, "forceAlgSelection is 2"),
            (INVALID_ARGUMENT, {"CTAPolicy": 4}, "CTAPolicy is 4"),
            (INVALID_ARGUMENT, {"algSelection": b"Ring"}, 'algSelection is "Ring"'),
            (INVALID_USAGE, {"launchCompletionEvent": 1}, "launchCompletionEvent"))):
        out = buffer(FLOAT32, [-1] * RANKS * RANKS)

        def call() -> None:
            getattr(nccl, f"nccl{name}Config")(buffer(FLOAT32, mine), out, *calls[name][0],
                                               self.comm, None, ctypes.byref(CollConfig(**options)))

        fails(code, call, f"nccl{name}Config", word)
        nccl.ncclGroupStart()
        fails(code, call, word)
        fails(code, nccl.ncclGroupEnd, f"nccl{name}Config", word)
        expect(set(FLOAT32.decode(out.raw)), {-1.0}, f"a refused {name} writes nothing")
    expect(self.all_reduce([1]), [4.0], "after calls that were refused")


def device_api_and_encryption(self: Rank) -> None:
    """Tests newer functions about devices and encryption: they answer, or refuse with the remedy."""
    nccl = self.nccl

    def team(name: str, *arguments: object) -> tuple[int, int, int]:
        found = nccl.raw(name, *arguments)
        return found.nRanks, found.rank, found.stride

    expect(team("ncclTeamWorld", self.comm), (RANKS, self.rank, 1), "team of all")
    for mode in range(3):
        expect(team("ncclTeamCft", self.comm, mode), (1, 0, 1), f"team of mode {mode}")
    expect(team("ncclTeamCftMultimem", self.comm), (1, 0, 1), "team of multimem")
    expect(team("ncclTeamCft", None, 0)[0], 0, "team of no communicator")
    ident, offset = ctypes.c_uint32(), ctypes.c_size_t()
    out = ctypes.byref(ident), ctypes.byref(offset)
    for name, *middle in (("Multimem",), ("Cft", 0, Team(1, 0, 1)), ("Peer", 0)):
        function = f"ncclGet{name}DeviceLeInfo"
        fails(INVALID_USAGE, lambda function=function, middle=middle: getattr(nccl, function)(
            None, 0, *middle, *out), function, "collectives")
    nccl.raw("ncclResetDebugInitInternal")

    def encrypt(**options: object) -> None:
        nccl.ncclSetEncryption(ctypes.byref(EncryptionConfig(**options)))

    nccl.ncclSetEncryption(None)
    encrypt()
    key = b"k" * 32
    fails(INVALID_USAGE, lambda: encrypt(mode=1, psk=key), "ncclSetEncryption", "encrypt")
    fails(INVALID_ARGUMENT, lambda: encrypt(mode=2), "mode is 2")
    fails(INVALID_ARGUMENT, lambda: encrypt(mode=-1), "mode is -1")
    for wrong in ({"magic": 0}, {"size": EncryptionConfig.mode.offset}):
        fails(INVALID_ARGUMENT, lambda wrong=wrong: encrypt(**wrong),
              "NCCL_ENCRYPTION_CONFIG_INITIALIZER")
    expect(self.all_reduce([1]), [4.0], "after a refused encryption")
