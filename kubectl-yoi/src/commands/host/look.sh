# Says what this machine has, a line for each fact. Writes nothing, and asks nobody.
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin
say() { printf '%s=%s\n' "$1" "$(printf %s "$2" | tr '\n\t' '  ')"; }
say system "$(uname -s)"
say machine "$(uname -m)"
say kernel "$(uname -r)"
say os "$([ -r /etc/os-release ] && . /etc/os-release && printf '%s %s' "$ID" "$VERSION_ID")"
say uid "$(id -u)"
if sudo -n true </dev/null >/dev/null 2>&1; then say sudo yes; elif command -v sudo >/dev/null 2>&1; then say sudo asks; else say sudo no; fi
say cgroup "$(stat -f -c %T /sys/fs/cgroup 2>/dev/null)"
[ -e /sys/fs/cgroup/memory/cgroup.procs ] && [ -e /sys/fs/cgroup/cpu/cgroup.procs ] && say cgroup.v1 yes
[ -e /var/lib/yoi-cluster/yoi-host ] && say node yes
say disk "$(stat -f -c %T /var/lib 2>/dev/null)"
say room "$(df -Pk /var/lib 2>/dev/null | sed -n 2p)"
say memory "$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' /proc/meminfo 2>/dev/null)"
say cpus "$(getconf _NPROCESSORS_ONLN 2>/dev/null)"
say filesystems "$(cat /proc/filesystems 2>/dev/null)"
for module in overlay btrfs; do modprobe -n -q "$module" >/dev/null 2>&1 && say "module.$module" yes; done
say lsm "$(cat /sys/kernel/security/lsm 2>/dev/null)"
for manager in apt-get dnf; do command -v "$manager" >/dev/null 2>&1 && say "manager.$manager" yes; done
for program in $PROGRAMS; do command -v "$program" >/dev/null 2>&1 && say "program.$program" yes; done
[ -e /usr/lib/cni/ptp ] || [ -e /usr/libexec/cni/ptp ] || [ -e /opt/cni/bin/ptp ] && say program.cni-plugins yes
say end yes
