#!/bin/bash
# cluster.sh - configs/cluster.json on the boxes hub, w0 .. w3, as docs/DEPLOY.md sets it up; inside of
# `lan.sh with` with hub as the first box.
#
# usage: tests/lan/cluster.sh FOLDER
#   FOLDER  gets a folder for every box that stands for its /etc/lanyard and /var/lib/lanyard, the
#           log of every process, and the result in FOLDER/hub/run
# A box named "stranger", if there is one, tries to join as worker 3 with a key of its own.
# Environment: LANYARD (default build/lanyard). Exit status: that of the coordinator.
set -eu

lan=$(dirname "$(readlink -f "$0")")/lan.sh
lanyard=$(readlink -f "${LANYARD:-build/lanyard}")
folder=${1:?usage: tests/lan/cluster.sh FOLDER}
boxes=(hub w0 w1 w2 w3)
mkdir -p "$folder"
folder=$(readlink -f "$folder")

# Every box makes its own key; the public halves are then copied to all.
for box in "${boxes[@]}" stranger; do
    mkdir -p "$folder/$box/boxes"
    "$lanyard" keygen "$folder/$box" --name "$box" >/dev/null
done
for box in "${boxes[@]}" stranger; do
    for other in "${boxes[@]}"; do
        cp "$folder/$other/$other.public" "$folder/$box/boxes/"
    done
    mv "$folder/$box/$box.secret" "$folder/$box/box.secret"
    sed -e "s|/etc/lanyard|$folder/$box|; s|/var/lib/lanyard|$folder/hub|" \
        -e 's|"format": "criteo"|"format": "criteo", "fifo_ends": true|' \
        -e 's|"cache": { "rows": 200000 }|"cache": { "rows": 8000 }|' \
        configs/cluster.json >"$folder/$box/cluster.json"
done
mkfifo "$folder/hub/samples"

started=()
end() {
    kill "${started[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
}
trap end EXIT
trap 'exit 143' TERM

start() { # box, log, arguments
    local box=$1 log=$2 command=$3
    shift 3
    "$lan" in "$box" "$lanyard" "$command" "$folder/$box/cluster.json" "$@" \
        >"$folder/$log.log" 2>&1 &
    started+=("$!")
}

# In no particular order; the stranger is there before anybody else.
if [ -e /run/lanyard-lan/stranger ]; then
    start stranger stranger worker --rank 3
fi
start w2 w2 worker --rank 2
start hub ps ps --rank 0
start w0 w0 worker --rank 0
for box in hub w1; do
    "$lan" in "$box" "$lanyard" doctor "$folder/$box/cluster.json" --out "$folder" --json \
        >"$folder/doctor-$box.json" || true
done
start hub coordinator coordinator --out "$folder/hub/run"
coordinator=$!
start w3 w3 worker --rank 3
start w1 w1 worker --rank 1

awk 'BEGIN {
    for (i = 0; i < 20480; i++) {
        line = (i * 7919) % 3 == 0
        for (d = 0; d < 13; d++) line = line "\t" (i * 31 + d) % 50
        for (f = 0; f < 26; f++) line = line sprintf("\t%08x", (i * (f + 3)) % 997 * 131071)
        print line
    } }' >"$folder/hub/samples" &
started+=("$!")

code=0
wait "$coordinator" || code=$?
for process in "${started[@]}"; do
    [ "$process" = "${started[0]}" ] && [ -e /run/lanyard-lan/stranger ] && continue
    wait "$process" || code=$?
done
exit "$code"
