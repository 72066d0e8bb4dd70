# Makes two devices of software RoCE, rxe0 and rxe1, and runs the command. They are ends of one veth
# pair in one network namespace, without IPv4 addresses: packets between their link-local GIDs cross
# the pair, where `tc qdisc add dev veth0 root netem ...` can lose or delay them.
. /run/rdma/environment.sh
ulimit -l unlimited
ip link set lo up
for name in default all; do echo 0 >/proc/sys/net/ipv6/conf/$name/accept_dad; done
ip link add veth0 mtu 4300 type veth peer name veth1 mtu 4300 # room for RoCE's largest MTU, 4096
for i in 0 1; do
  ip link set veth$i up
done
for i in 0 1; do
  rdma link add rxe$i type rxe netdev veth$i || exit 125
done
for _ in $(seq 100); do # until both have their link-local addresses
  [ "$(cat /sys/class/infiniband/rxe[01]/ports/1/gids/0 2>/dev/null | grep -c '^fe80')" = 2 ] && break
  sleep 0.1
done
# The machine has booted on one processor: a virtual one that waits for another costs most where the
# host is busy.
for cpu in /sys/devices/system/cpu/cpu[1-9]*/online; do
  [ ! -e "$cpu" ] || echo 1 >"$cpu"
done
echo '<2>the guest is ready' >/dev/kmsg
. /run/rdma/command.sh
