"""Hosts on one machine whose links have a given rate."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "compare"))
import machine  # noqa: E402
from hosts import Hosts  # noqa: E402


class ShapedHosts(Hosts):
    """Namespaces, each joined to a bridge by a cable that token buckets shape in both directions."""

    def __init__(self, count: int, mbit_per_s: int) -> None:
        if not machine.has("tc"):
            raise machine.Failure("tc is not installed (package iproute2)")
        self.mbit_per_s = mbit_per_s
        super().__init__(count)

    def join(self) -> None:
        switch = self.names[0] + "s"
        self.run("ip", "netns", "add", switch)
        self.names += (switch,)  # close() removes it, too; it has no address and no ranks
        self.ip("-n", switch, "link", "add", self.DEVICE, "type", "bridge")
        for host, name in enumerate(self.names[:-1]):
            plug = f"plug{host}"
            self.ip("-n", name, "link", "add", self.DEVICE, "type", "veth", "peer", "name", plug,
                    "netns", switch)
            self.ip("-n", switch, "link", "set", plug, "master", self.DEVICE)
            self.ip("-n", switch, "link", "set", plug, "up")
            for inside, device in ((name, self.DEVICE), (switch, plug)):
                self.run("tc", "-n", inside, "qdisc", "add", "dev", device, "root", "tbf", "rate",
                         f"{self.mbit_per_s}mbit", "burst", "256kb", "latency", "100ms")
        self.ip("-n", switch, "link", "set", self.DEVICE, "up")

    def run_ranks(self, ranks: list[int], program: list[str], extra: dict[str, str],
                  limit_s: float) -> None:
        """Runs a program of whorl: ranks[host] processes on each host, numbered host after host."""
        every = {**extra, "WHORL_NRANKS": str(sum(ranks)), "WHORL_INSECURE": "1",
                 "WHORL_ADDRESS": f"{self.addresses[0]}:{self.next_port()}"}
        places = [host for host, count in enumerate(ranks) for _ in range(count)]
        machine.run_all([([*self.enter(host), *program], {**every, "WHORL_RANK": str(rank)})
                         for rank, host in enumerate(places)], limit_s)
