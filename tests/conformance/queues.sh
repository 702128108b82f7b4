#!/usr/bin/env bash
# piperun --queues: the bits of a program are the same in every queue layout that it is proven for, on threads and under
# MPI, whatever its order; the others are refused before anything starts. Usage: queues.sh BIN MODEL [MPIRUN]
BIN=$1 model=$2 mpirun=${3-}
. "$(dirname "$0")/check.sh"
unset OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK
layouts="channel edge direction pair rank"

# build NAME OPTIONS…
build() {
  "$BIN/pipec" build -q "$model" -o "$work/$1.ppx" "${@:2}" || failures=$((failures + 1))
}

go() { # NAME IMAGE OPTIONS…
  run "$1" 0 "$BIN/piperun" -q --transport=loop --weights-hash "$work/$2.ppx" "${@:3}"
}

go_mpi() { # NAME RANKS IMAGE OPTIONS…
  run "$1" 0 timeout -k 5 60 "$mpirun" -n "$2" "$BIN/piperun" -q --weights-hash "$work/$3.ppx" "${@:4}"
}

# refused NAME LAYOUT PROVEN COMMAND…
refused() {
  run "$1" 3 timeout -k 5 30 "${@:4}"
  lines "$1" 1 "^error\[E0906\]: with --queues=$2 this program could deadlock: it is proven for $3 only; use one of these, or build it with --lowering=end, which is proven for all\$"
}

for order in end lazy start free; do
  build "$order" -D pp=4 -D mbs=8 -D tied=true --schedule 1f1b --lowering="$order" --set 'run.eval_data=tail(0.1)'
done
go whole end
for order in end lazy start free; do
  for queues in $layouts; do
    if [ $order = free ] && [[ $queues != channel && $queues != edge ]]; then
      refused "$order-$queues" $queues 'channel, edge' "$BIN/piperun" -q --transport=loop "$work/$order.ppx" --queues=$queues
    else
      go "$order-$queues" $order --queues=$queues --check-identity
      same whole "$order-$queues"
    fi
  done
done

# Two channels in each direction between ranks, and groups along two axes.
build grid -D pp=2 -D vpp=2 -D mbs=4 --schedule interleaved --set parallel.dp=2 --set parallel.zero=1 --set cluster.gpus=4
go grid grid
for queues in pair rank; do
  go "grid-$queues" grid --queues=$queues --jitter=3
  same grid "grid-$queues"
done

# Every axis at once, with recompute, in every order.
axes=(--set parallel.tp=2 --set parallel.sp=true --set parallel.dp=2 --set parallel.zero=1 --set cluster.gpus=8)
for order in end lazy start free; do
  build "all-$order" -D pp=2 -D mbs=4 --schedule 1f1b --lowering=$order --set train.recompute=full "${axes[@]}"
  go "all-$order" "all-$order" --queues="$([ $order = free ] && echo edge || echo rank)"
  same all-end "all-$order"
done

if [ -n "$mpirun" ]; then
  for queues in pair rank; do
    go_mpi "mpi-$queues" 4 start --queues=$queues
    same whole "mpi-$queues"
  done
  go_mpi mpi-grid 4 grid --queues=direction
  same grid mpi-grid
  refused mpi-free pair 'channel, edge' "$mpirun" -n 4 "$BIN/piperun" -q "$work/free.ppx" --queues=pair
fi

# The image says how it was ordered; texts keep it, and cannot be ordered again.
"$BIN/pipedump" "$work/free.ppx" --view=stats >"$work/stats" || failures=$((failures + 1))
grep -qx ' proven: no deadlock in layouts channel, edge; posts starting in order: none; lowering: free; bits: fixed' "$work/stats" || {
  cat "$work/stats"
  failures=$((failures + 1))
}
"$BIN/pipedump" "$work/free.ppx" --format=pps >"$work/free.pps" || failures=$((failures + 1))
run text 0 "$BIN/pipec" build "$work/free.pps" -o "$work/again.ppx"
lines text 1 'proven: no deadlock in queue layouts channel edge, with posts that start in program order in none$'
go again again --queues=edge
same whole again
run given 2 "$BIN/pipec" build "$work/free.pps" --lowering=lazy -o "$work/lazy.ppx"
lines given 1 '^pipec: --lowering=lazy: .*free\.pps is a program text, whose order is given$'

echo "$failures failures"
[ "$failures" = 0 ]
