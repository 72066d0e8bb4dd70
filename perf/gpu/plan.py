"""Steps to measure and predictions for them: the table M1 to M10 of docs/gpu_tests.md."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# Share of the memory's peak that the kernel for one device reaches (2 ranks, 1 GiB: 0.845), and microseconds of the
# smallest operation in a graph (2 ranks, 8 B: 2.6), both on an H100: docs/results/gpu_h100_2026-11-26.md, whose own
# predictions were made with 0.92 and 1.5.
REACHABLE = 0.845
NODE_US = 2.6
TYPES = ("float", "double", "bfloat16", "half", "f8e4m3", "f8e5m2", "int8")


@dataclass
class Step:
    """One run of gpu_bench, or of a script in its place. `rows`: keys of each row that it
    should print."""

    measurement: str
    title: str
    arguments: list[str]
    rows: list[Row]
    limit: float = 12  # seconds
    environment: dict[str, str] = field(default_factory=dict)
    script: str = ""
    labels: Row = field(default_factory=dict)  # entered into each row
    skipped: str = ""  # reason why the step is not run

    def line(self) -> str:
        variables = " ".join(f"{name}={value}" for name, value in self.environment.items())
        program = self.script or "gpu_bench"
        return " ".join([*([variables] if variables else []), program,
                         *(f"'{one}'" if " " in one else one for one in self.arguments)])


def text_of(size: int) -> str:
    for unit, name in ((GIB, "G"), (MIB, "M"), (KIB, "K")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def list_of(sizes: list[int]) -> str:
    return ",".join(text_of(size) for size in sizes)


@dataclass
class Plan:
    smoke: bool
    nccl: str = ""
    nccl_missing: str = ""

    def effort(self, rounds: int = 7, ms: int = 3) -> list[str]:
        return ["--rounds", "2" if self.smoke else str(rounds), "--ms", "1" if self.smoke else str(ms)]

    def sizes(self, *sizes: int) -> list[int]:
        return [4 * KIB, 64 * KIB] if self.smoke else list(sizes)

    def ranks(self, *ranks: int) -> tuple[int, ...]:
        return (2, 4) if self.smoke else ranks

    def collective(self, measurement: str, name: str, ranks: int, sizes: list[int],
                   kinds: tuple[str, ...] = ("float",), more: list[str] | None = None,
                   **fields: Any) -> Step:
        rows = [{"measurement": measurement, "collective": name, "ranks": ranks, "bytes": size,
                 "type": kind} for kind in kinds for size in sizes]
        return Step(measurement, f"{name}, {ranks} ranks, {', '.join(kinds)}",
                    ["collectives", "--name", measurement, "--collective", name, "-N", str(ranks),
                     "-d", ",".join(kinds), "--sizes", list_of(sizes), *self.effort(), *(more or [])],
                    rows, **fields)

    def steps(self) -> list[Step]:
        """Returns the steps in the order of their importance: those without time are at the end."""
        first, *others = self.fused()
        one_kernel, schedules, direct, processes, host = self.identity()
        costs = Step("M10", "costs", ["costs", "--name", "M10", *self.effort(9)],
                     [{"measurement": "M10", "collective": "none"}])
        return [first, one_kernel[0], costs, *others, *self.latency(), *one_kernel[1:], *schedules, *direct,
                *self.ring(), *processes, *self.processes(), *self.types(), *self.by_host(), *host,
                *self.abort(), *self.others()]

    def fused(self) -> list[Step]:
        sizes = self.sizes(4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB)
        ranks = self.ranks(2, 8, 4)
        steps = [self.collective("M1", "allreduce", number, sizes) for number in ranks]
        return steps + [self.collective("M1", name, number, sizes)
                        for number in ranks[:2] for name in ("reducescatter", "allgather", "alltoallv")]

    def others(self) -> list[Step]:
        sizes = self.sizes(64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
        steps = []
        for ranks in self.ranks(2, 8):
            step = self.collective("M2", "allreduce", ranks, sizes,
                                   more=["--nccl", self.nccl] if self.nccl else [],
                                   environment={"NCCL_MULTI_RANK_GPU_ENABLE": "1"},
                                   skipped=self.nccl_missing)
            steps.append(step)
            rows = [{"measurement": "M2", "collective": "sums of torch", "ranks": ranks,
                     "bytes": size, "type": "float"} for size in sizes]
            steps.append(Step("M2", f"torch's own operations, {ranks} tensors",
                              [str(ranks), list_of(sizes)], rows, script="torch_sums.py", limit=60))
        return steps

    def latency(self) -> list[Step]:
        sizes = [8, KIB] if self.smoke else [8, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB]
        return [Step("M3", f"latency, {ranks} ranks",
                     ["latency", "--name", "M3", "-N", str(ranks), "--sizes", list_of(sizes),
                      *self.effort(9, 5)],
                     [{"measurement": "M3", "collective": "allreduce", "ranks": ranks,
                       "bytes": size, "type": "float"} for size in sizes])
                for ranks in self.ranks(2, 8)]

    def processes(self) -> list[Step]:
        sizes = self.sizes(4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
        return [self.of_processes("M4", ranks, sizes, {}) for ranks in self.ranks(2, 4, 8)]

    def by_host(self) -> list[Step]:
        sizes = self.sizes(4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
        return [self.of_processes("M5", ranks, sizes, {"WHORL_DEVICE_IPC": "0"})
                for ranks in self.ranks(2, 4, 8)]

    def of_processes(self, name: str, ranks: int, sizes: list[int],
                     environment: dict[str, str]) -> Step:
        rows = [{"measurement": name, "collective": "allreduce", "ranks": ranks, "bytes": size,
                 "type": "float"} for size in sizes]
        return Step(name, f"allreduce of {ranks} processes",
                    ["processes", "--name", name, "-N", str(ranks), "--sizes", list_of(sizes),
                     *self.effort(5, 2)], rows, environment=environment)

    def types(self) -> list[Step]:
        sizes = self.sizes(256 * MIB)[-1:]
        return [self.collective("M6", "reduce", ranks, sizes, TYPES) for ranks in self.ranks(2, 8)]

    def ring(self) -> list[Step]:
        """Returns steps for slots of the default size, then of others."""
        sizes = self.sizes(4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
        parameter = "WHORL_DEVICE_ALGO"
        steps = []
        for slot in ("default",) if self.smoke else ("default", "262144"):
            size = {} if slot == "default" else {"WHORL_SLOT_BYTES": slot}
            steps += [self.collective("M7", "allreduce", ranks, sizes,
                                      more=["--ring", "--needs", parameter],
                                      environment={parameter: "schedule", **size}, labels={"slots": slot})
                      for ranks in self.ranks(2, 4, 8)]
        return steps

    def abort(self) -> list[Step]:
        sizes = self.sizes(64 * MIB, GIB)
        return [Step("M9", f"abort, {ranks} ranks",
                     ["abort", "--name", "M9", "-N", str(ranks), "--sizes", list_of(sizes),
                      *self.effort(5)],
                     [{"measurement": "M9", "collective": "allreduce", "ranks": ranks,
                       "bytes": size, "type": "float"} for size in sizes],
                     environment={"WHORL_DEVICE_ALGO": "schedule"})
                for ranks in self.ranks(2, 4)]

    def identity(self) -> list[list[Step]]:
        """Returns the steps of each path: one kernel, schedules, direct exchanges, processes, host."""
        sizes = [1000, 64 * KIB] if self.smoke else [1000, 64 * KIB, 4 * MIB]
        paths: list[tuple[str, dict[str, str]]] = [
            ("one kernel", {}),
            # twoshot adds in the order of the ranks.
            ("schedules", {"WHORL_DEVICE_ALGO": "schedule", "WHORL_ALGO": "twoshot"}),
            ("schedules, small ones directly", {"WHORL_DEVICE_ALGO": "schedule"}),
            ("processes", {}), ("host", {"WHORL_DEVICE_IPC": "0", "WHORL_SEGMENT_BYTES": "0"})]
        steps: list[list[Step]] = []
        for path, environment in paths:
            steps.append([])
            # Larger ones take an algorithm that may add in another order.
            of_path = [size for size in sizes if size <= 64 * KIB] if "directly" in path else sizes
            for ranks in (2, 3) if self.smoke else (2, 3, 8):
                few = self.smoke or ranks > 2
                kinds = ("float", "bfloat16") if few else TYPES
                rows = [{"measurement": "M8", "path": path, "ranks": ranks, "bytes": size,
                         "type": kind, "data": data}
                        for kind in kinds for size in of_path for data in ("exact", "order-sensitive")]
                steps[-1].append(Step("M8", f"{path}, {ranks} ranks",
                                      ["identity", "--name", "M8", "--path", path, "-N", str(ranks),
                                       "-d", ",".join(kinds), "--sizes",
                                       ",".join(str(size) for size in of_path)],
                                      rows, environment=environment))
        # Segments are pieces of the same operation: their bits are those of the host.
        steps[-1].append(Step("M8", "host, segments of 64 KiB, 3 ranks",
                              ["identity", "--name", "M8", "--path", "host, segments of 64 KiB",
                               "-N", "3", "-d", "float", "--sizes",
                               ",".join(str(size) for size in sizes)],
                              [{"measurement": "M8", "path": "host, segments of 64 KiB", "ranks": 3,
                                "bytes": size, "type": "float", "data": data}
                               for size in sizes for data in ("exact", "order-sensitive")],
                              environment={"WHORL_DEVICE_IPC": "0", "WHORL_SEGMENT_BYTES": "65536"}))
        return steps


def predicted_us(row: Row, peak: float, ping_us: float | None) -> float | None:
    """Predicts [model] whorl's time from byte counts. `peak`: rate of the memory, bytes per second; 0:
    unknown. `ping_us`: measured time from one process's stream to another's."""
    us = row.get("us") or {}
    if row["measurement"] == "M3":
        return us["empty"] + 2 if "empty" in us else None
    if row["measurement"] == "M5":
        return us.get("copies of all")
    if not peak or "moved_bytes" not in row:
        return None
    memory = row["moved_bytes"] / (REACHABLE * peak) * 1e6
    if row["measurement"] == "M4":
        return None if ping_us is None else 2 * ping_us + memory
    return NODE_US + memory


def predicted_other_us(row: Row, other: str, peak: float) -> float | None:
    """Predicts the time of `other`, which whorl is compared with."""
    size, ranks = row.get("bytes", 0), row.get("ranks", 0)
    if not peak or row.get("collective") not in ("allreduce", "sums of torch"):
        return None
    moved = {"nccl": 6 * (ranks - 1) * size, "ring": 5 * (ranks - 1) * size,
             "torch": 5 * (ranks - 1) * size,
             "triad": row.get("moved_bytes", 0), "copy": row.get("moved_bytes", 0)}[other]
    return NODE_US + moved / (REACHABLE * peak) * 1e6


@dataclasses.dataclass
class Target:
    """Target of a row, and whether the row meets it."""

    text: str
    met: bool


def target_of(row: Row) -> Target | None:
    name, size, us = row["measurement"], row.get("bytes", 0), row.get("us") or {}
    ratios = row.get("times_as_fast_as") or {}
    if name == "M8":
        field_ = ("differ_from_host" if row["path"].startswith("host") else "differ_from_rank_order")
        return Target("0 differ", row.get(field_) == 0 and
                      (row["data"] != "exact" or row.get("differ_from_rank_order") == 0))
    if name in ("M1", "M6") and size >= 64 * MIB and "triad" in ratios:
        return Target("≥ 90 % of triad", ratios["triad"] >= 0.9)
    if name == "M2" and row["ranks"] == 2 and "nccl" in ratios:
        return Target("≥ 1.4 × NCCL", ratios["nccl"] >= 1.4)
    if name == "M3" and "empty" in us:
        return Target("≤ launch + 2 µs", us["whorl"] <= us["empty"] + 2)
    if name == "M4" and size >= 256 * MIB and "triad" in ratios:
        return Target("≥ 60 % of triad", ratios["triad"] >= 0.6)
    if name == "M5" and size >= 16 * MIB and "copies of all" in ratios:
        return Target("≥ 80 % of the copies", ratios["copies of all"] >= 0.8)
    if name == "M9" and "whorl" in us:
        return Target("≤ 10 ms", us["whorl"] <= 10_000)
    if name == "M7" and "ring" in ratios:
        if size >= 16 * MIB:
            return Target("≥ 97 % of ring", ratios["ring"] >= 0.97)
        if size <= 64 * KIB:
            return Target("≤ ring + 1 µs", us["whorl"] <= us["ring"] + 1)
    return None
