"""A /dev/shm and a network of the driver's own, in which nobody else leaves anything or takes a port."""
import os
import shutil
import subprocess
import sys

# Address of the host in this network that is not loopback, where ranks of whorl have no port.
ADDRESS = "10.79.0.1"
_MARK = "SCOREBOARD_OWN_SYSTEM"
# Open MPI needs an interface beside lo: one end of a cable, whose other end is here, too.
_PREPARE = f"""mount -t tmpfs -o mode=1777 scoreboard /dev/shm &&
ip link add cable type veth peer name cable-end && ip addr add {ADDRESS}/24 dev cable &&
for one in lo cable cable-end; do ip link set $one up || exit 1; done"""


def enter():
    """Runs this program again with both, where that is possible. Returns whether it has them."""
    if _MARK in os.environ:
        return os.environ.pop(_MARK) == "1"
    tools = all(map(shutil.which, ("unshare", "ip", "mount")))
    inside = ["unshare", "--mount", "--net", "sh", "-c"]
    if not tools or subprocess.run([*inside, _PREPARE], capture_output=True, check=False).returncode != 0:
        return False
    os.environ[_MARK] = "1"
    os.execvp("unshare", [*inside, f'{_PREPARE} && exec "$0" "$@"', sys.executable, *sys.argv])
