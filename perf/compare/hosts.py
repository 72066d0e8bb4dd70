"""Hosts on one machine: network namespaces that virtual cables join."""
import os
import pathlib
import subprocess
import time

import machine
from machine import Failure

# Command that gives the processes of a host a host name and shared memory of their own, as on two
# machines. Without them a library would notice that it need not use the network.
INSIDE = 'hostname "$0" && exec "$@"'


class Hosts:
    """Namespaces that the constructor makes and close() removes. Needs root."""
    NETWORK = "10.78.0.0/24"
    DEVICE = "cable"

    def __init__(self, count=2):
        if os.geteuid() != 0:
            raise Failure("network namespaces need root")
        for program in ("ip", "unshare"):
            if not machine.has(program):
                raise Failure(f"{program} is not installed (packages iproute2, util-linux)")
        self.names = tuple(f"compare{os.getpid()}{chr(ord('a') + host)}" for host in range(count))
        self.addresses = tuple(f"10.78.0.{host + 1}" for host in range(count))
        self.port = 24000
        try:
            for name in self.names:
                self.ip("netns", "add", name)
                self.ip("-n", name, "link", "set", "lo", "up")
            self.join()
            for name, address in zip(self.names, self.addresses):
                self.ip("-n", name, "addr", "add", address + "/24", "dev", self.DEVICE)
                self.ip("-n", name, "link", "set", self.DEVICE, "up")
            self.wait_until_up()
        except Failure:
            self.close()
            raise

    def join(self):
        """Makes the device of each namespace: here the ends of one cable."""
        first, second = self.names
        self.ip("-n", first, "link", "add", self.DEVICE, "type", "veth", "peer", "name", self.DEVICE,
                "netns", second)

    @staticmethod
    def run(*words):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failure(f"`{' '.join(words)}`: {machine.first_line(done.stderr)}")
        return done.stdout

    def ip(self, *arguments):
        return self.run("ip", *arguments)

    def wait_until_up(self):
        """Waits until both ends of the cable are up, since some libraries overlook a new device."""
        deadline = time.monotonic() + 5
        while not all("state UP" in self.ip("-n", name, "link", "show", self.DEVICE)
                      for name in self.names):
            if time.monotonic() > deadline:
                raise Failure("the cable between the namespaces did not come up within 5 s")
            time.sleep(0.02)

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def next_port(self):
        """Returns another port each time, since the last run's port may still be closing."""
        self.port = 24000 + (self.port - 23999) % 4000
        return self.port

    def paths(self):
        return [pathlib.Path("/run/netns") / name for name in self.names]

    def enter(self, host):
        """Returns the words with which a command begins to run on this host."""
        name = self.names[host]
        return ["ip", "netns", "exec", name, "unshare", "--uts", "--ipc", "sh", "-c", INSIDE, name]

    def agent(self, scratch):
        """Writes a stand-in for ssh, for launchers: `agent [flags] HOST WORDS...` runs a command line."""
        return script_at(scratch / "agent",
                         'while [ "${1#-}" != "$1" ]; do shift; done\n'
                         'host=$1\nshift\n'
                         'exec ip netns exec "$host" unshare --uts --ipc '
                         'sh -c "hostname $host && $*"\n')

    def pinned(self, case, scratch):
        """Returns the words with which a program begins so that a launcher that takes hosts for machines
        of their own does not put all ranks on the same core."""
        if case.ranks > machine.cores():
            return []
        cores = " ".join(map(str, sorted(os.sched_getaffinity(0))))
        return [script_at(scratch / "pinned",
                          'rank=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}\n'
                          f'for core in {cores}; do\n'
                          '  [ "$rank" -gt 0 ] || exec taskset -c "$core" "$@"\n'
                          '  rank=$((rank - 1))\n'
                          'done\n')]


def script_at(path, text):
    if not path.exists():
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
    return path
