#!/bin/bash
# run.sh - one run of lanyard with every process in its own box; inside of `lan.sh with`.
#
# usage: tests/lan/run.sh CONFIG OUT [KEY=VALUE]...
#   CONFIG  its `workers` must be the number of boxes named w0, w1, ...
#   OUT     summary.json, metrics.jsonl, model/ as of `lanyard up --out`; logs/ of every process,
#           and bytes: "BOX UP DOWN" that went through each box's interface
# Box `ps` holds the coordinator and the PS shards, except shard N where there is a box psN; box wN
# worker N. Where CONFIG has `boxes`, a shard is in the box of the first worker that shares its
# machine. CONFIG is shown to all boxes, OUT and the input only to `ps`.
# Environment: LANYARD (default build/lanyard). Exit status: that of the coordinator; its log and
# those of members that failed go to standard error then.
set -eu

lan=$(dirname "$(readlink -f "$0")")/lan.sh
lanyard=$(readlink -f "${LANYARD:-build/lanyard}")
config=${1:?usage: tests/lan/run.sh CONFIG OUT [KEY=VALUE]...} out=${2:?no OUT}
shift 2

mkdir -p "$out/logs"
out=$(readlink -f "$out") config=$(readlink -f "$config")
address=$("$lan" address ps)
sets=(--set "network.bind=\"$address\"" --set security.insecure=true)
for one in "$@"; do
    sets+=(--set "$one")
done
resolved=$("$lanyard" check "$config" "${sets[@]}" 2>"$out/logs/check") ||
    { cat "$out/logs/check" >&2 && exit 1; }
value() { # of a key of the resolved configuration; of a list a line each
    python3 -c 'import functools, json, sys
one = functools.reduce(dict.get, sys.argv[1].split("."), json.load(sys.stdin))
print(*one if isinstance(one, list) else [one], sep="\n")' "$1" <<<"$resolved"
}
for box in /run/lanyard-lan/*; do
    "$lan" show "${box##*/}" "$config" "$lanyard"
done
"$lan" disk ps "$out"
while read -r file; do
    [ ! -e "$file" ] || "$lan" show ps "$file"
done < <({ value stream.files && value dispatch.profile; } | sort -u)
"$lan" bytes >"$out/logs/bytes.before"

started=()
end() {
    kill "${started[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
}
trap end EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

mkfifo "$out/logs/listener"
"$lan" in ps "$lanyard" coordinator "$config" --out "$out" --announce-fd 3 "${sets[@]}" \
    3>"$out/logs/listener" >"$out/logs/coordinator" 2>&1 &
coordinator=$!
started+=("$coordinator")
# Ends without a line when the coordinator ends.
read -r listener <"$out/logs/listener" || { cat "$out/logs/coordinator" >&2 && exit 1; }
rm "$out/logs/listener"

member() { # box, name of the log, arguments
    local box=$1 name=$2
    shift 2
    "$lan" in "$box" "$lanyard" "$1" "$2" --coordinator "$listener" "${sets[@]}" "${@:3}" \
        >"$out/logs/$name" 2>&1 &
    started+=("$!")
}
shards=$(value ps.shards) workers=$(value workers)
shard_boxes() { # of every shard a line: the box of its machine's first worker, or "ps"
    python3 -c 'import json, sys
worker = 0
for box in json.load(sys.stdin)["boxes"]:
    for shard in range(box["shards"]):
        print("w%d" % worker if box["workers"] else "ps")
    worker += box["workers"]' <<<"$resolved"
}
mapfile -t homes < <(shard_boxes)
for ((i = 0; i < shards; i++)); do
    box=${homes[i]:-ps}
    [ ! -e "/run/lanyard-lan/ps$i" ] || box=ps$i
    member "$box" "ps$i" ps "$config" --rank "$i" \
        --set "network.bind=\"$("$lan" address "$box")\""
done
for ((i = 0; i < workers; i++)); do
    member "w$i" "worker$i" worker "$config" --rank "$i" \
        --set "network.bind=\"$("$lan" address "w$i")\""
done

code=0
wait "$coordinator" || code=$?
"$lan" bytes >"$out/logs/bytes.after"
join "$out/logs/bytes.before" "$out/logs/bytes.after" |
    awk '{ print $1, $4 - $2, $5 - $3 }' >"$out/bytes"
if [ "$code" -ne 0 ]; then
    tail -n 5 "$out"/logs/{coordinator,ps?*,worker?*} >&2
fi
exit "$code"
