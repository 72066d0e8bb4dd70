"""NCCL through ctypes: the library is chosen by its path, functions are looked up by name."""
import ctypes
import os
from typing import Any

Result = ctypes.c_int
Comm = ctypes.c_void_p
Stream = ctypes.c_void_p
Buffer = ctypes.c_void_p
Count = ctypes.c_size_t
Enum = ctypes.c_int


class UniqueId(ctypes.Structure):
    """Id of 128 bytes, passed by value."""
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Config(ctypes.Structure):
    """ncclConfig_t of 2.28."""
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                ("blocking", ctypes.c_int), ("cgaClusterSize", ctypes.c_int),
                ("minCTAs", ctypes.c_int), ("maxCTAs", ctypes.c_int), ("netName", ctypes.c_char_p),
                ("splitShare", ctypes.c_int), ("trafficClass", ctypes.c_int),
                ("commName", ctypes.c_char_p), ("collnetEnable", ctypes.c_int),
                ("CTAPolicy", ctypes.c_int), ("shrinkShare", ctypes.c_int),
                ("nvlsCTAs", ctypes.c_int), ("nChannelsPerNetPeer", ctypes.c_int),
                ("nvlinkCentricSched", ctypes.c_int)]

    def __init__(self, **options: Any) -> None:
        super().__init__()
        for name, kind in self._fields_:
            if kind is ctypes.c_int:
                setattr(self, name, -2**31)
        self.size, self.magic, self.version = ctypes.sizeof(self), 0xcafebeef, 22809
        for name, value in options.items():
            setattr(self, name, value)


class CollConfig(ctypes.Structure):
    """ncclCollConfig_t of 2.32."""
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                ("ext", ctypes.c_void_p), ("minCTAs", ctypes.c_int), ("maxCTAs", ctypes.c_int),
                ("nvlsCTAs", ctypes.c_int), ("cgaClusterSize", ctypes.c_int),
                ("algSelection", ctypes.c_char_p), ("forceAlgSelection", ctypes.c_int),
                ("CTAPolicy", ctypes.c_int), ("userProfilerTag", ctypes.c_uint64),
                ("launchCompletionEvent", ctypes.c_void_p)]

    def __init__(self, **options: Any) -> None:
        unset = dict.fromkeys(("minCTAs", "maxCTAs", "nvlsCTAs", "cgaClusterSize", "CTAPolicy"),
                              -2**31)
        super().__init__(**{"size": ctypes.sizeof(CollConfig), "magic": 0xcafebeef,
                            "version": 23203, "forceAlgSelection": 1, **unset, **options})


class EncryptionConfig(ctypes.Structure):
    """ncclEncryptionConfig_t."""
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                ("mode", ctypes.c_int), ("psk", ctypes.c_char_p)]

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"size": ctypes.sizeof(EncryptionConfig), "magic": 0xcafebeef,
                            "version": 23203, **options})


class Team(ctypes.Structure):
    """ncclTeam_t."""
    _fields_ = [("nRanks", ctypes.c_int), ("rank", ctypes.c_int), ("stride", ctypes.c_int)]


class SimInfo(ctypes.Structure):
    """ncclSimInfo_t."""
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                ("estimatedTime", ctypes.c_float)]


_P = ctypes.POINTER
_COMM, _COUNT, _INT = _P(Comm), Count, ctypes.c_int
FUNCTIONS: dict[str, list[Any]] = {
    "ncclGetVersion": [_P(_INT)],
    "ncclGetUniqueId": [_P(UniqueId)],
    "ncclCommInitRank": [_COMM, _INT, UniqueId, _INT],
    "ncclCommInitRankConfig": [_COMM, _INT, UniqueId, _INT, _P(Config)],
    "ncclCommInitRankScalable": [_COMM, _INT, _INT, _INT, _P(UniqueId), _P(Config)],
    "ncclCommInitAll": [_COMM, _INT, _P(_INT)],
    "ncclCommSplit": [Comm, _INT, _INT, _COMM, _P(Config)],
    "ncclCommShrink": [Comm, _P(_INT), _INT, _COMM, _P(Config), _INT],
    "ncclCommGrow": [Comm, _INT, _P(UniqueId), _INT, _COMM, _P(Config)],
    "ncclCommGetUniqueId": [Comm, _P(UniqueId)],
    "ncclCommFinalize": [Comm],
    "ncclCommDestroy": [Comm],
    "ncclCommAbort": [Comm],
    "ncclCommRevoke": [Comm, _INT],
    "ncclCommGetAsyncError": [Comm, _P(Result)],
    "ncclCommCount": [Comm, _P(_INT)],
    "ncclCommCuDevice": [Comm, _P(_INT)],
    "ncclCommUserRank": [Comm, _P(_INT)],
    "ncclMemAlloc": [_P(Buffer), ctypes.c_size_t],
    "ncclMemFree": [Buffer],
    "ncclCommRegister": [Comm, Buffer, ctypes.c_size_t, _P(ctypes.c_void_p)],
    "ncclCommDeregister": [Comm, ctypes.c_void_p],
    "ncclCommWindowRegister": [Comm, Buffer, ctypes.c_size_t, _P(ctypes.c_void_p), _INT],
    "ncclCommWindowDeregister": [Comm, ctypes.c_void_p],
    "ncclWinGetUserPtr": [Comm, ctypes.c_void_p, _P(ctypes.c_void_p)],
    "ncclRedOpCreatePreMulSum": [_P(_INT), ctypes.c_void_p, Enum, Enum, Comm],
    "ncclRedOpDestroy": [Enum, Comm],
    "ncclReduce": [Buffer, Buffer, _COUNT, Enum, Enum, _INT, Comm, Stream],
    "ncclBcast": [Buffer, _COUNT, Enum, _INT, Comm, Stream],
    "ncclBroadcast": [Buffer, Buffer, _COUNT, Enum, _INT, Comm, Stream],
    "ncclAllReduce": [Buffer, Buffer, _COUNT, Enum, Enum, Comm, Stream],
    "ncclReduceScatter": [Buffer, Buffer, _COUNT, Enum, Enum, Comm, Stream],
    "ncclAllGather": [Buffer, Buffer, _COUNT, Enum, Comm, Stream],
    "ncclAlltoAll": [Buffer, Buffer, _COUNT, Enum, Comm, Stream],
    "ncclGather": [Buffer, Buffer, _COUNT, Enum, _INT, Comm, Stream],
    "ncclScatter": [Buffer, Buffer, _COUNT, Enum, _INT, Comm, Stream],
    "ncclSend": [Buffer, _COUNT, Enum, _INT, Comm, Stream],
    "ncclRecv": [Buffer, _COUNT, Enum, _INT, Comm, Stream],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclGroupSimulateEnd": [_P(SimInfo)],
    "ncclSetEncryption": [_P(EncryptionConfig)],
    "ncclGetMultimemDeviceLeInfo": [Comm, _COUNT, _P(ctypes.c_uint32), _P(_COUNT)],
    "ncclGetCftDeviceLeInfo": [Comm, _COUNT, _INT, Team, _P(ctypes.c_uint32), _P(_COUNT)],
    "ncclGetPeerDeviceLeInfo": [Comm, _COUNT, _INT, _P(ctypes.c_uint32), _P(_COUNT)],
}
CONFIGURED = ("AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AlltoAll", "Gather",
              "Scatter")
FUNCTIONS.update({f"nccl{name}Config": [*FUNCTIONS[f"nccl{name}"], _P(CollConfig)]
                  for name in CONFIGURED})


class NcclError(Exception):
    """A call that did not return ncclSuccess."""

    def __init__(self, name: str, code: int, text: str) -> None:
        super().__init__(f"{name} returned {code}: {text}")
        self.code, self.text = code, text


class Library:
    """Functions of a library; a call by name raises NcclError, `raw` returns the code."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path or os.environ["VLLM_NCCL_SO_PATH"]
        self._dll = ctypes.CDLL(self.path)
        self._dll.ncclGetErrorString.restype = ctypes.c_char_p
        self._dll.ncclGetErrorString.argtypes = [Result]
        self._dll.ncclGetLastError.restype = ctypes.c_char_p
        self._dll.ncclGetLastError.argtypes = [Comm]
        for name, types in FUNCTIONS.items():
            function = getattr(self._dll, name, None)
            if function is not None:
                function.argtypes, function.restype = types, Result
        for name, types in {"ncclTeamWorld": [Comm], "ncclTeamCft": [Comm, Enum],
                            "ncclTeamCftMultimem": [Comm]}.items():
            function = getattr(self._dll, name, None)
            if function is not None:
                function.argtypes, function.restype = types, Team

    def raw(self, name: str, *arguments: Any) -> int:
        """Returns the result code of a call."""
        return getattr(self._dll, name)(*arguments)

    def error_string(self, code: int) -> str:
        """Calls ncclGetErrorString."""
        return self._dll.ncclGetErrorString(code).decode()

    def last_error(self, comm: Any = None) -> str:
        """Calls ncclGetLastError."""
        return self._dll.ncclGetLastError(comm).decode()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nccl"):
            raise AttributeError(name)

        def call(*arguments: Any) -> None:
            code = self.raw(name, *arguments)
            if code != 0:
                raise NcclError(name, code, self.last_error())

        return call
