#!/bin/sh
# Gives a Debian a Btrfs for trees, in a file. Again is the same as once.
set -eu
file=/var/lib/yoi-trees.img
command -v mkfs.btrfs >/dev/null || {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -qq -y btrfs-progs openssh-server
}
if [ ! -e "$file" ]; then
  rm -f "$file.new"
  truncate -s "${TREES_GIB}G" "$file.new"
  mkfs.btrfs -q "$file.new"
  mv "$file.new" "$file"
fi
mkdir -p /var/lib/yoi
grep -q " /var/lib/yoi " /etc/fstab || echo "$file /var/lib/yoi btrfs loop,nofail 0 0" >>/etc/fstab
mountpoint -q /var/lib/yoi || mount /var/lib/yoi
