#!/bin/busybox sh
# The first process: mounts the root, read-only below a file system in memory, and runs the script of the share.
b=/bin/busybox
$b mkdir -p /proc /sys /lower /memory /new
$b mount -t proc proc /proc
for module in $($b cat /modules/order); do
    $b insmod "/modules/$module"
done
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=1048576 root /lower
$b mount -t tmpfs -o mode=755 memory /memory
$b mkdir /memory/upper /memory/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/memory/upper,workdir=/memory/work overlay /new
$b mount --move /proc /new/proc
$b mount -t sysfs sys /new/sys
$b mount -t devtmpfs dev /new/dev
$b mkdir -p /new/dev/shm /new/dev/pts
$b mount -t devpts -o gid=5,mode=620 pts /new/dev/pts
$b mount -t tmpfs -o size=80%,mode=1777 shm /new/dev/shm
$b mount -t tmpfs -o mode=755 run /new/run
# Every write to the share is on the host when the call returns.
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576 share /new/share
exec $b switch_root /new /bin/sh -c '
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
cd /share
sh ./run > out 2>&1
echo $? > rc.new && mv rc.new rc
sync
echo o > /proc/sysrq-trigger
sleep 60'
