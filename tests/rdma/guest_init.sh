#!/bin/busybox sh
# First process of the guest: loads modules, mounts the host's files beneath a layer in memory, runs
# the command in them, and reports its exit code on the second serial port.
/bin/busybox --install -s /bin
export PATH=/bin

finish() { # exit code
  echo "$1" >/dev/ttyS1
  poweroff -f
}

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do
  insmod "/modules/$module.ko" || echo "the module $module could not be loaded"
done </order

options=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o "ro,$options,cache=loose" host /lower || finish 125
mount -t tmpfs -o size=75% layer /layer && mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work root /root || finish 125
for kind in proc sysfs devtmpfs; do
  case $kind in proc) at=proc ;; sysfs) at=sys ;; *) at=dev ;; esac
  mount -t "$kind" "$kind" "/root/$at"
done
mkdir -p /root/dev/shm /root/dev/pts
mount -t tmpfs -o mode=1777 shm /root/dev/shm
mount -t devpts pts /root/dev/pts
mount -t tmpfs run /root/run
ln -sf /proc/self/fd /root/dev/fd
ln -sf /proc/self/fd/0 /root/dev/stdin
ln -sf /proc/self/fd/1 /root/dev/stdout
ln -sf /proc/self/fd/2 /root/dev/stderr
writable=$(cat /job/writable)
if [ -n "$writable" ]; then
  mkdir -p "/root$writable"
  mount -t 9p -o "$options,cache=none" writable "/root$writable" || finish 125
fi
hostname rdma
echo '127.0.0.1 rdma' >>/root/etc/hosts
mkdir -p /root/run/rdma && cp /job/* /root/run/rdma/

# The output goes through a port of its own: serial consoles are slow.
tries=0
while ! ls /dev/vport*p1 >/dev/null 2>&1 && [ $tries -lt 100 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
mkfifo /output
cat </output >"$(ls /dev/vport*p1)" &
copying=$!
chroot /root /bin/bash /run/rdma/devices.sh </dev/null >/output 2>&1
code=$?
# A process that the command left behind may hold the output open.
tries=0
while kill -0 $copying 2>/dev/null && [ $tries -lt 20 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
finish $code
