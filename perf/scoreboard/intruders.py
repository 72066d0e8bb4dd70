"""Connections of strangers to the port where the ranks of a job meet."""
import os
import pathlib
import random
import socket
import struct
import time

CONNECTIONS = 40


def listening_place(pid, limit_s=1.0):
    """Returns address and TCP port at which the process listens, as soon as it does; None if it does not within the
    limit."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if places := _places(pid):
            return places[0]
        time.sleep(0.001)
    return None


def _places(pid):
    sockets = set()
    try:
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            name = os.readlink(link)
            if name.startswith("socket:["):
                sockets.add(name[len("socket:["):-1])
        lines = pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return []
    # Columns of /proc/net/tcp: 1 the local address, 3 the state (0A: listening), 9 the socket's number.
    rows = [line.split() for line in lines]
    local = [row[1].split(":") for row in rows if row[3] == "0A" and row[9] in sockets]
    return [(socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)) for address, port in local]


class Intruders:
    """Strangers at one port."""

    def __init__(self, garbage):
        self.garbage, self.sockets, self.port = garbage, [], None
        self.noise = random.Random(20)

    def arrive(self, process):
        """Connects to a port of the process, if it has one, as often as that accepts."""
        address, self.port = listening_place(process.pid) or (None, None)
        for _ in range(CONNECTIONS if self.port else 0):
            try:
                one = socket.create_connection((address, self.port), timeout=0.2)
                self.sockets.append(one)
                if self.garbage:
                    one.sendall(self.noise.randbytes(200))
            except OSError:
                continue

    def leave(self):
        for one in self.sockets:
            one.close()
