# Run by mmdebstrap in a Debian with the kernel's headers and zfs-dkms, whose installation has built the module. Leaves the kernel and its modules in $OUT.
set -eu
root=$1
kernel=$(ls "$root/lib/modules")
zfs=$(chroot "$root" dpkg-query -W -f '${source:Upstream-Version}' zfs-dkms)
ls "$root/lib/modules/$kernel/updates/dkms/zfs.ko" > /dev/null

chroot "$root" sh -c "cd /tmp && apt-get download linux-image-$kernel"
mkdir "$root/tmp/image"
dpkg-deb -x "$root"/tmp/linux-image-*.deb "$root/tmp/image"
from=$root/tmp/image/lib/modules/$kernel
to=$OUT/modules/$kernel
mkdir -p "$to"
cp "$root/tmp/image/boot/vmlinuz-$kernel" "$OUT/vmlinuz"
# What file systems and the disks of a virtual machine take.
(cd "$from" && cp -a --parents kernel/fs kernel/crypto kernel/lib kernel/arch kernel/net/9p kernel/drivers/block kernel/drivers/md kernel/drivers/virtio "$to/")
cp "$from"/modules.builtin* "$from/modules.order" "$to/"
cp -a "$root/lib/modules/$kernel/updates" "$to/"
find "$to/updates" -name '*.ko' -exec strip --strip-debug {} +
printf 'kernel %s\nzfs %s\n' "$kernel" "$zfs" > "$OUT/versions"
