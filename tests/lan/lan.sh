#!/bin/bash
# lan.sh - a LAN of boxes with shaped links, for as long as a command runs.
#
# usage: tests/lan/lan.sh with BOX=MBIT[/MBIT_DOWN]... -- COMMAND [ARGUMENT]...
#   inside of COMMAND:
#        tests/lan/lan.sh in BOX COMMAND...          runs a command in a box
#        tests/lan/lan.sh show BOX PATH...           the box sees it, and cannot change it
#        tests/lan/lan.sh disk BOX FOLDER[=NAME]...  it is the box's: what it writes there is kept
#        tests/lan/lan.sh address BOX                its IP address
#        tests/lan/lan.sh rate BOX MBIT[/MBIT_DOWN]  changes its link
#        tests/lan/lan.sh bytes [BOX]...             "BOX UP DOWN" of bytes so far
#        tests/lan/lan.sh cut BOX | mend BOX         pulls its cable, plugs it in again
#
# Every box is a network namespace with one cable to a bridge, shaped both ways by tbf: sending on
# the box's end, receiving on the bridge's. Only boxes reach each other. And it is a mount namespace
# with files of its own: /etc (a copy of the machine's), /var, /run, /tmp, /home, /root are on a
# tmpfs that no other box sees; /usr and the source tree are the machine's, and read-only. `show`
# and `disk` add more of the machine's files, under the same names. All of it, names included, lives
# in a network, mount and process namespace of its own that ends with COMMAND: nothing is made
# outside, so nothing can be left behind (also after kill -9), and several LANs do not meet.
# Exit status: that of COMMAND; 77 with "skip: REASON" where the rights for this are missing.
set -eu

run=/run/lanyard-lan # on a tmpfs that only COMMAND and its children see: BOX has address and port
files=/run/lanyard-files # BOX.pid: of who holds its namespaces; BOX/: what it was shown later
self=$(readlink -f "$0")

usage() {
    sed -n '3,12s/^# //p' "$self" >&2
    exit 2
}

# tbf passes what its bucket holds at line rate, so the bucket is small, but never below a packet as
# large as segmentation offload makes them (64 KB and 46 headers): one that waits while the rate is
# changed to less than it needs would wait for ever. It queues 20 ms, and never less than the 256 KB
# that small switches have for a port: with less, TCP runs into time-outs that no real link has.
shape() { # "add" or "change", command prefix, device, Mbit/s
    local action=$1 device=$3 mbit=$4
    local burst=$((mbit * 1000 / 8 * 4))
    [ "$burst" -ge 73728 ] || burst=73728
    local queue=$((mbit * 1000 / 8 * 20))
    [ "$queue" -ge 262144 ] || queue=262144
    $2 tc qdisc "$action" dev "$device" root tbf rate "${mbit}mbit" burst "$burst" \
        limit $((burst + queue))
}

check_rate() {
    [[ $1 =~ ^[1-9][0-9]{0,5}(/[1-9][0-9]{0,5})?$ ]] && return
    echo "lan.sh: link \"$1\": expected MBIT or MBIT_UP/MBIT_DOWN" >&2
    exit 2
}

# The file system of a box, in the box's own mount namespace: becomes its root. What is mounted below
# $files/BOX outside appears in its /shown.
furnish() { # box
    local root=/run/root tree at
    tree=$(readlink -f "$(dirname "$self")/../..")
    hostname "$1"
    mkdir -p "$root"
    mount -t tmpfs -o mode=755 tmpfs "$root"
    for at in /bin /sbin /lib /lib32 /lib64 /libx32; do
        [ ! -L "$at" ] || ln -s "$(readlink "$at")" "$root$at"
    done
    for at in /usr /opt "$tree"; do
        mkdir -p "$root$at"
        mount --bind "$at" "$root$at"
        mount -o remount,bind,ro "$root$at"
    done
    mount -t tmpfs -o mode=755 tmpfs "$root/usr/local/bin"
    mkdir -p "$root"/{dev,proc,sys,etc,run,home,root,tmp,shown,before,var/{log,lib,cache,tmp}}
    chmod 700 "$root/root"
    chmod 1777 "$root"/{tmp,var/tmp}
    cp -a /etc/. "$root/etc" 2>/dev/null || true # but for what this user may not read
    mount --rbind /dev "$root/dev"
    mount --rbind /proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --bind "$files/$1" "$root/shown"
    [ ! -d /var/lib/dpkg ] || { mkdir "$root/var/lib/dpkg" &&
        mount --bind -o ro /var/lib/dpkg "$root/var/lib/dpkg"; }
    cd "$root"
    pivot_root . before
    umount --lazy /before
    rmdir /before
    echo furnished
    exec sleep infinity </dev/null >/dev/null 2>&1 # the namespaces are there as long as it is
}

isolate_files() { # box
    mkdir "$files/$1"
    mount --bind "$files/$1" "$files/$1"
    mount --make-shared "$files/$1"
    mkfifo "$files/$1.ready"
    unshare --mount --uts --propagation slave -- "$self" furnish "$1" >"$files/$1.ready" &
    echo "$!" >"$files/$1.pid"
    local answer=
    read -r answer <"$files/$1.ready" || true
    [ "$answer" = furnished ] || { echo "lan.sh: cannot furnish box $1" >&2 && exit 1; }
}

inside() { # the first process of the new namespaces
    mount -t proc proc /proc
    mount -t tmpfs tmpfs /run
    mkdir -p /run/netns "$run" "$files"
    ip link set lo up
    ip link add switch type bridge
    ip link set switch up
    local number=0 box rate
    while [ "$1" != -- ]; do
        box=${1%%=*} rate=${1#*=} number=$((number + 1))
        ip netns add "$box"
        ip link add "port$number" type veth peer name eth0 netns "$box"
        ip link set "port$number" master switch up
        in_box "$box" ip link set lo up
        in_box "$box" ip link set eth0 up
        in_box "$box" ip address add "10.77.0.$number/24" dev eth0
        # What Debian uses, where a kernel prefers another one and knows this one.
        in_box "$box" ip route change 10.77.0.0/24 dev eth0 proto kernel scope link \
            src "10.77.0.$number" congctl cubic 2>/dev/null || true
        shape add "in_box $box" eth0 "${rate%/*}"
        shape add "" "port$number" "${rate#*/}"
        isolate_files "$box"
        echo "10.77.0.$number port$number" >"$run/$box"
        shift
    done
    shift
    trap 'exit 143' TERM
    trap 'exit 130' INT
    # In the background it would have SIGINT ignored, and so would all that it starts.
    env --default-signal=INT,QUIT "$@" <&0 &
    local code=0
    wait $! || code=$?
    exit "$code"
}

in_box() { # with the files outside
    local box=$1
    shift
    nsenter --net="/run/netns/$box" -- "$@"
}

enter() { # with those of the box; stays in the folder, if the box has it
    local box=$1
    shift
    exec nsenter --net="/run/netns/$box" --target="$(<"$files/$box.pid")" --mount --uts -- \
        bash -c 'cd "$0" 2>/dev/null || cd /; exec "$@"' "$PWD" "$@"
}

# Shows a path of outside in a box, under its own name or NAME.
show() { # box, options of mount, path[=NAME]
    local box=$1 options=$2 path name number
    path=$(readlink -e "${3%%=*}") || { echo "lan.sh: ${3%%=*} is not there" >&2 && exit 2; }
    name=$path
    [[ $3 != *=* ]] || name=${3#*=}
    ! grep -qxF "$name" "$files/$box.shown" 2>/dev/null || return 0 # it was shown before
    echo "$name" >>"$files/$box.shown"
    number=$(find "$files/$box" -mindepth 1 -maxdepth 1 | wc -l)
    if [ -d "$path" ]; then mkdir "$files/$box/$number"; else touch "$files/$box/$number"; fi
    mount --bind "$path" "$files/$box/$number"
    (enter "$box" bash -eu -c '
        [ "$3" != ro ] || ! [ "$1" -ef "$2" ] || exit 0 # a part of the tree
        if [ -d "$1" ]; then mkdir -p "$2"; else mkdir -p "${2%/*}" && touch "$2"; fi
        [ "$3" != ro ] || mount -o remount,bind,ro "$1" # the mount, not what is mounted: here
        mount --bind "$1" "$2"' show "/shown/$number" "$name" "$options")
}

with() {
    local rest=() box boxes=0 isolate=(--net --mount --pid --propagation private)
    for box in "$@"; do
        [ "$box" = -- ] && break
        [[ $box =~ ^[a-z][a-z0-9]{0,11}=(.+)$ ]] || usage
        check_rate "${BASH_REMATCH[1]}"
        boxes=$((boxes + 1))
    done
    [ "$boxes" -gt 0 ] && [ "$boxes" -le 100 ] && [ $# -gt $((boxes + 1)) ] || usage
    command -v ip >/dev/null && command -v tc >/dev/null ||
        { echo "skip: ip and tc are not installed (iproute2)" && exit 77; }
    [ "$(id -u)" -eq 0 ] || isolate+=(--user --map-root-user)
    local why
    why=$(unshare "${isolate[@]}" --fork -- bash -c '
        mount -t proc proc /proc && mount -t tmpfs tmpfs /run && mkdir /run/netns && ip netns add box &&
        ip link add switch type bridge && ip link add port type veth peer name eth0 netns box &&
        tc qdisc add dev port root tbf rate 1mbit burst 65536 latency 20ms' 2>&1) ||
        { echo "skip: no network namespaces here: ${why//$'\n'/ }" && exit 77; }
    exec unshare "${isolate[@]}" --fork --kill-child -- "$self" inside "$@"
}

box_exists() {
    [ -f "$run/${1:-}" ] && return
    echo "lan.sh: no box \"${1:-}\" (inside of \`lan.sh with\` only)" >&2
    exit 2
}

verb=${1:-}
[ $# -gt 0 ] && shift
case $verb in
with) with "$@" ;;
inside) inside "$@" ;;
in)
    box_exists "${1:-}"
    enter "$@"
    ;;
show | disk)
    box_exists "${1:-}"
    box=$1
    shift
    [ "$verb" = show ] && options=ro || options=
    for path in "$@"; do
        show "$box" "$options" "$path"
    done
    ;;
furnish) furnish "$@" ;;
address)
    box_exists "${1:-}"
    cut -d' ' -f1 "$run/$1"
    ;;
rate)
    box_exists "${1:-}"
    check_rate "${2:-}"
    shape change "in_box $1" eth0 "${2%/*}"
    shape change "" "$(cut -d' ' -f2 "$run/$1")" "${2#*/}"
    ;;
bytes) # the bridge's ports count both directions
    [ $# -gt 0 ] || { cd "$run" && set -- *; }
    for box in "$@"; do
        box_exists "$box"
        awk -v box="$box" -v port="$(cut -d' ' -f2 "$run/$box"):" \
            '$1 == port { print box, $2, $10 }' /proc/thread-self/net/dev
    done
    ;;
cut | mend) # at the switch: no process in the box is told
    box_exists "${1:-}"
    [ "$verb" = cut ] && state=down || state=up
    ip link set "$(cut -d' ' -f2 "$run/$1")" "$state"
    ;;
*) usage ;;
esac
