# Run by mmdebstrap in the root of the guest. Adds the modules of $MODULES and leaves the initramfs in $OUT.
set -eu
root=$1
kernel=$(ls "$MODULES/modules")
mkdir -p "$root/lib/modules" "$root/share"
cp -a "$MODULES/modules/$kernel" "$root/lib/modules/"
chroot "$root" depmod -a "$kernel"

first=$OUT/first
mkdir -p "$first/bin" "$first/modules"
cp "$root/bin/busybox" "$first/bin/"
cp "$OUT/init" "$first/init"
for module in virtio_pci 9pnet_virtio 9p overlay; do
    chroot "$root" modprobe --set-version "$kernel" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' > "$OUT/needed"
while read -r file; do
    cp "$root$file" "$first/modules/"
    basename "$file" >> "$first/modules/order"
done < "$OUT/needed"
(cd "$first" && find . | "$root/bin/busybox" cpio -o -H newc 2> /dev/null | gzip) > "$OUT/initramfs"
rm -r "$first" "$OUT/needed" "$OUT/init"
