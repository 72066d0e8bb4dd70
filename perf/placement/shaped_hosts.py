"""Hosts on one machine whose links have a given rate: network namespaces, each joined to a bridge by
a cable that token buckets shape in both directions. Needs root."""
import os
import subprocess
import time


class Failure(Exception):
    """Sentence about what went wrong."""


def ip(*arguments: str) -> str:
    return command("ip", *arguments)


def command(*arguments: str) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"`{' '.join(arguments)}`: {done.stderr.strip() or done.returncode}")
    return done.stdout


class ShapedHosts:
    """Namespaces that the constructor makes and close() removes."""

    def __init__(self, count: int, mbit_per_s: int) -> None:
        if os.geteuid() != 0:
            raise Failure("network namespaces need root")
        prefix = f"shaped{os.getpid()}"
        self.switch = f"{prefix}s"
        self.names = [f"{prefix}h{host}" for host in range(count)]
        self.port = 26000
        try:
            ip("netns", "add", self.switch)
            ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.switch, "link", "set", "bridge", "up")
            for host, name in enumerate(self.names):
                self.join(host, name, mbit_per_s)
            self.wait_until_up()
        except Failure:
            self.close()
            raise

    def join(self, host: int, name: str, mbit_per_s: int) -> None:
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        plug = f"plug{host}"
        ip("-n", name, "link", "add", "cable", "type", "veth", "peer", "name", plug, "netns", self.switch)
        ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "cable")
        ip("-n", self.switch, "link", "set", plug, "master", "bridge")
        for inside, device in ((name, "cable"), (self.switch, plug)):
            ip("-n", inside, "link", "set", device, "up")
            command("tc", "-n", inside, "qdisc", "add", "dev", device, "root", "tbf", "rate",
                    f"{mbit_per_s}mbit", "burst", "256kb", "latency", "100ms")

    @staticmethod
    def address(host: int) -> str:
        return f"10.79.0.{host + 1}"

    def wait_until_up(self) -> None:
        deadline = time.monotonic() + 5
        while any("state UP" not in ip("-n", name, "link", "show", "cable") for name in self.names):
            if time.monotonic() > deadline:
                raise Failure("the cables of the namespaces did not come up within 5 s")
            time.sleep(0.02)

    def close(self) -> None:
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def run(self, ranks: list[int], program: list[str], extra: dict[str, str], limit_s: float) -> None:
        """Runs a program of whorl: ranks[host] processes on each host, numbered host after host."""
        self.port += 1
        every = {**os.environ, **extra, "WHORL_NRANKS": str(sum(ranks)), "WHORL_INSECURE": "1",
                 "WHORL_ADDRESS": f"{self.address(0)}:{self.port}"}
        places = [name for name, count in zip(self.names, ranks) for _ in range(count)]
        processes = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, "unshare", "--uts", "--ipc", "sh", "-c",
                 'hostname "$0" && exec "$@"', name, *program],
                env={**every, "WHORL_RANK": str(rank)}, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for rank, name in enumerate(places)]
        deadline = time.monotonic() + limit_s
        failure = ""
        for process in processes:
            try:
                _, said = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
                if process.returncode != 0 and not failure:
                    failure = f"status {process.returncode}: {said.strip()[-400:]}"
            except subprocess.TimeoutExpired:
                failure = failure or f"it did not end within {limit_s:.0f} s"
                process.kill()
                process.wait()
        if failure:
            raise Failure(f"`{' '.join(program)}` failed: {failure}")
