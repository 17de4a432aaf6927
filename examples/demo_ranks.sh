#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Four ranks on two machines, as make demo-ranks runs them: two network namespaces joined by a
# link of 1 Gbit/s, a slow origin for each rank, memory of all ranks for the data set and a sample
# each. Prints from where each rank's samples came, on its own and with the others; then they save
# one checkpoint together and load it together.
#
#   demo_ranks.sh BUILD
#
# Root, iproute2. Without root all ranks are on the loopback.
set -euo pipefail
cd "$(dirname "$0")/.."
stoker="$PWD/$1/cli/stoker"
work="$(mktemp -d /tmp/stoker-ranks-XXXXXX)"
tag="stkdemo$$"
hosts=()

remove() {
    for host in "${hosts[@]}"; do
        ip netns del "$host" || true
    done
    rm -rf "$work"
}
trap remove EXIT

make_hosts() {
    for at in 1 2; do
        ip netns add "$tag$at"
        hosts+=("$tag$at")
    done
    ip -n "${hosts[0]}" link add eth0 type veth peer name eth0 netns "${hosts[1]}"
    for at in 1 2; do
        ip -n "$tag$at" link set lo up
        ip -n "$tag$at" addr add "10.98.0.$at/24" dev eth0
        ip -n "$tag$at" link set eth0 up
        ip netns exec "$tag$at" tc qdisc add dev eth0 root tbf rate 1gbit burst 512kb latency 20ms
    done
    sleep 2 # until the link is up
}

address=127.0.0.1
if [ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v tc >/dev/null; then
    make_hosts
    address=10.98.0.1
else
    echo "no root or no iproute2: all ranks are on the loopback"
fi

# 400 samples of 108 KB; each rank's part of the memory is a quarter of that and one sample.
mkdir "$work/set"
head -c 43200000 /dev/urandom | split -b 108000 -d -a 5 - "$work/set/"
run=("$work/set" --format folder --batch 8 --epochs 5 --seed 1 --layout raw --json --quiet
    --tier ram:64M --ram-bytes 10908000 --staging-bytes 4M --shape "rbps=20M rlat=2ms"
    --compute-us 20000)

# ranks NAME COMMAND OPTION...: runs "stoker bench COMMAND" on all four.
ranks() {
    local name="$1" command="$2" rank at=() pids=()
    shift 2
    for rank in 0 1 2 3; do
        at=()
        [ ${#hosts[@]} -gt 0 ] && at=(ip netns exec "${hosts[$((rank / 2))]}")
        RANK=$rank WORLD_SIZE=4 STOKER_ADDR=$address STOKER_PORT=29490 \
            STOKER_HOSTS=10.98.0.1,10.98.0.2,127.0.0.1 \
            "${at[@]}" "$stoker" bench "$command" "${@//RANK/$rank}" \
            >"$work/$name$rank.json" &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do
        wait "$rank"
    done
}

echo "4 ranks, 5 epochs of 400 samples, an origin of 20 MB/s and 2 ms for each"
ranks alone load "${run[@]}" --world 4 --rank RANK
ranks together load "${run[@]}"
mkdir "$work/run"
ranks saving save --root "$work/run" --size 64M --saves 3 --load --together --check-replicas \
    --json --quiet
python3 examples/demo_ranks_report.py "$work"
