# Three network namespaces: a laptop, a jump host, and behind it a machine with a /var/lib of its own and nothing that compiles.
# Called as: bash -c SCRIPT up|inventory|down FOLDER NAME
set -eu
what=$0 folder=$1 name=$2
case $what in
up)
    mkdir -p "$folder/varlib" "$folder/home" "$folder/empty" "$folder/cgroup" "$folder/bin" /run/sshd
    for key in client jump machine; do ssh-keygen -q -t ed25519 -N '' -f "$folder/$key"; done
    for side in jump machine; do
        printf '%s\n' "HostKey $folder/$side" "AuthorizedKeysFile $folder/client.pub" 'StrictModes no' 'UsePAM no' 'PasswordAuthentication no' \
            'KbdInteractiveAuthentication no' 'PermitRootLogin prohibit-password' "PidFile $folder/$side.pid" 'Port 22' >"$folder/$side.config"
    done
    printf '%s\n' 'Host build' '  HostName 10.99.2.2' '  ProxyJump jump' 'Host jump' '  HostName 10.99.1.2' 'Host *' '  User root' \
        "  IdentityFile $folder/client" '  IdentitiesOnly yes' '  IdentityAgent none' "  UserKnownHostsFile $folder/known" \
        '  GlobalKnownHostsFile /dev/null' >"$folder/config"
    { printf '10.99.1.2 ' && cat "$folder/jump.pub" && printf '10.99.2.2 ' && cat "$folder/machine.pub"; } >"$folder/known"
    printf '#!/bin/sh\nexec /usr/bin/ssh -F %s "$@"\n' "$folder/config" >"$folder/bin/ssh"
    ln -s "$(readlink -f "$YOI_KUBECTL_YOI")" "$folder/bin/kubectl-yoi"
    ln -s "$(readlink -f "$YOI_KUBECTL")" "$folder/bin/kubectl"
    chmod 755 "$folder/bin/ssh"
    for side in laptop jump machine; do
        ip netns add "$name-$side"
        ip -n "$name-$side" link set lo up
    done
    ip link add up0 netns "$name-laptop" type veth peer name down0 netns "$name-jump"
    ip link add up1 netns "$name-jump" type veth peer name down1 netns "$name-machine"
    ip -n "$name-laptop" address add 10.99.1.1/30 dev up0
    ip -n "$name-jump" address add 10.99.1.2/30 dev down0
    ip -n "$name-jump" address add 10.99.2.1/30 dev up1
    ip -n "$name-machine" address add 10.99.2.2/30 dev down1
    for link in laptop/up0 jump/down0 jump/up1 machine/down1; do ip -n "$name-${link%/*}" link set "${link#*/}" up; done
    nsenter "--net=/run/netns/$name-jump" /usr/sbin/sshd -f "$folder/jump.config"
    nsenter "--net=/run/netns/$name-machine" unshare -m --propagation private sh -euc '
        mount --rbind /sys/fs/cgroup "$0/cgroup" && mount -t sysfs sysfs /sys && mount --rbind "$0/cgroup" /sys/fs/cgroup
        mount --bind "$0/varlib" /var/lib
        mount --bind "$0/home" ~
        [ ! -d /usr/local/go ] || mount --bind "$0/empty" /usr/local/go
        exec /usr/sbin/sshd -f "$0/machine.config"' "$folder"
    ;;
inventory)
    # In the machine, over ssh: what a node could leave behind there.
    find /var/lib /sys/class/net /sys/fs/cgroup -maxdepth 2 -name '*yoi-host*' -o -path '/var/lib/*' -o -path '/sys/class/net/*' | sort
    ls -A ~
    # Tests beside this one mount below the folders for what passes.
    cut -d' ' -f5 /proc/self/mountinfo | grep -v '^/proc/\|^/tmp/\|^/dev/shm/\|^/run/netns/' | sort
    losetup --list --noheadings --output BACK-FILE | grep yoi-host || true
    # Addresses of version 6 are tried for a while when a link comes.
    ip -o -4 address; ip -4 route show table all; ip rule
    iptables -w -S; iptables -w -t nat -S; ipset list -name
    cat /proc/sys/net/ipv4/ip_forward
    for process in /proc/[0-9]*; do tr '\0' ' ' <"$process/cmdline" 2>/dev/null | grep -o '/var/lib/yoi-cluster/[y]oi-host.*\|/var/lib/yoi-cluster/[b]undles.*' || true; done
    ls -A /etc/systemd/system 2>/dev/null || true
    ;;
down)
    # Where a test has failed, its node may be there yet.
    if [ -e "$folder/varlib/yoi-cluster" ]; then
        nsenter "--net=/run/netns/$name-laptop" "$folder/bin/ssh" build \
            'for program in /var/lib/yoi-cluster/bundles/*/bin/yoi-host; do [ ! -x "$program" ] || "$program" down; done' || true
    fi
    for side in jump machine; do [ ! -e "$folder/$side.pid" ] || kill "$(cat "$folder/$side.pid")" || true; done
    for side in laptop jump machine; do
        # Connections of ssh that are there yet.
        ip netns pids "$name-$side" 2>/dev/null | xargs -r kill -9 || true
        ip netns delete "$name-$side" || true
    done
    ;;
esac
