"""Rounds of runs: one run of each library after the other, with a probe of the cores between runs."""
import json
import os
import time

import machine
import plan
from machine import Failure

WARMUP = 3
PERCENTILES = ("p50_us", "p99_us", "p999_us", "max_us")
BUDGET_MS = {"dirty": 20, "moving": 20, "warm": 10, "cold": 40}


class Session:
    """Measurement of cases, which appends to `runs` and `limits`."""

    def __init__(self, args, libraries, scratch, hosts, say):
        self.args, self.libraries, self.scratch = args, libraries, scratch
        self.hosts, self.say = hosts, say
        self.runs, self.limits, self.problems = [], [], []
        self.broken = set()
        self.last = None

    def probe(self):
        self.last = machine.probe(self.args.probe)
        return self.last

    def case(self, case, seconds):
        """Runs rounds while another one will probably end in time, and case.rounds at least."""
        end, taken, count = time.monotonic() + seconds, 0.0, 0
        while count < case.rounds or time.monotonic() + taken < end:
            start = time.monotonic()
            if count % 8 == 0:
                self.measure_limits(case)
            count += 1
            self.round(case, count)
            taken = time.monotonic() - start

    def round(self, case, number):
        self.probe()
        line = []
        for library in self.libraries:
            if not library.offers(case) or (library.name, case.key()) in self.broken:
                continue
            before = self.last
            try:
                rows = self.rows(library, case)
            except Failure as failure:
                self.give_up(library, case, failure)
                self.probe()
                continue
            after = self.probe()
            state = machine.state_between(before, after)
            self.runs.append({
                "where": case.where, "collective": case.collective, "ranks": case.ranks,
                "mode": case.mode + (" together" if self.together(case) else ""), "round": number,
                "library": library.name, "state": state,
                "busy": machine.busy(before, after),
                "exchange_ns": [one and one[0] for one in (before, after)], "rows": rows[0],
                "init_ms": rows[1]})
            line.append(state[0] if state != "changed" else "x")
        self.say(f"{case.where} {case.collective} of {case.ranks} ranks, {case.mode}, round "
                 f"{number}: {''.join(line)} load {os.getloadavg()[0]:.1f}")

    def together(self, case):
        """Returns whether operations of a case begin on all ranks at the same moment."""
        return self.args.together and case.where != plan.HOSTS and case.mode in ("dirty", "moving") and \
            case.ranks <= machine.cores()

    def rows(self, library, case):
        flags = ["--sizes", ",".join(map(str, case.sizes or (8,))), "--mode", case.mode,
                 "--side", case.side, "--budget", BUDGET_MS[case.mode], "-n", self.args.iterations,
                 "-w", WARMUP, "-c", 1, "-a", 3]
        if self.together(case):
            flags.append("--together")
        report = library.run(case, flags, self.args.limit, self.scratch, self.hosts)
        side = "in_place" if case.side == "in" else "out_of_place"
        return ({str(row["bytes"]): {"us": row[side]["time_us"], **{one: row[side][one] or 0 for one in PERCENTILES}}
                 for row in report["rows"]}, report.get("init_ms"))

    def give_up(self, library, case, failure):
        sentence = (f"{library.name}, {case.where} {case.collective} of {case.ranks} ranks, "
                    f"{case.mode}: {failure}")
        if library.name.startswith("whorl"):
            raise Failure(sentence)
        self.broken.add((library.name, case.key()))
        self.problems.append(sentence + ". It is left out there.")
        self.say(self.problems[-1])

    def measure_limits(self, case):
        """Measures the limits of the machine in its present state; see raw_limits.cc."""
        if machine.cores() < 2 or not self.args.limits.exists():
            return
        before = self.probe()
        try:
            values = json.loads(machine.output_of(str(self.args.limits), *self.limit_flags(case)))
        except ValueError:
            return
        state = machine.state_between(before, self.probe())
        self.limits.append({"where": case.where, "state": state, "values": values})

    def limit_flags(self, case):
        if case.where == plan.HOSTS:
            return ["--tcp", *map(str, self.hosts.paths()), self.hosts.addresses[0]]
        return ["--tcp"] if case.where == plan.TCP else []
