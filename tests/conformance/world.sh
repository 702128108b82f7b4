#!/usr/bin/env bash
# Worlds of pp x tp x dp: the same steps and weights on threads and under mpirun, whatever the order of ranks; messages
# name a rank with its coordinate. Usage: world.sh BIN PARITY [MPIRUN]
BIN=$1
PARITY=$2
MPIRUN=${3-}
. "$(dirname "$0")/check.sh"
unset OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK

# build NAME MODEL PP TP DP OPTIONS...
build() {
  run "build_$1" 0 "$BIN/pipec" build -q "$PARITY/$2.pipe" -D "pp=$3" --set "parallel.tp=$4" --set "parallel.dp=$5" \
    --set "cluster.gpus=$(($3 * $4 * $5))" --set run.steps=3 -o "$work/$1.ppx" "${@:6}"
}

# result NAME: what a run computed, in NAME.bits.
result() {
  { sed -E 's/, "tokens_per_s".*//' "$work/$1.jsonl"; grep ^weights "$work/$1.out"; } >"$work/$1.bits"
  [ "$(wc -l <"$work/$1.bits")" -gt 20 ] || { echo "$1: no result"; failures=$((failures + 1)); }
}

equal() {
  cmp -s "$work/$1.bits" "$work/$2.bits" && return
  echo "$1 and $2 differ:"
  diff "$work/$1.bits" "$work/$2.bits" | head -6
  failures=$((failures + 1))
}

loop() {
  run "$1" 0 "$BIN/piperun" -q --transport=loop "$work/$2.ppx" --metrics="$work/$1.jsonl" --weights-hash "${@:3}"
  result "$1"
}

mpi() {
  run "$1" 0 timeout -k 5 60 "$MPIRUN" -n 8 "$BIN/piperun" -q "$work/$2.ppx" --metrics="$work/$1.jsonl" --weights-hash "${@:3}"
  result "$1"
}

# Every order of ranks has the same bits. The default one runs on both transports, with every check.
full=(--set parallel.sp=true --set parallel.zero=1 -D tied=true --schedule h1)
build gpt model 2 2 2 "${full[@]}"
loop gpt gpt --trace="$work/gpt.json"
for order in "tp, pp, dp" "dp, tp, pp" "dp, pp, tp" "pp, tp, dp" "pp, dp, tp"; do
  build order model 2 2 2 "${full[@]}" --set "parallel.rank_order=[$order]"
  loop order order
  equal gpt order
done
build llama llama 2 2 2 --set parallel.zero=1 --schedule 1f1b
loop llama llama
loop checked llama --check-identity --jitter=3 --canary
equal llama checked
[ "$(grep -c '^canary of rank [0-7] (pp [01] tp [01] dp [01]): .* nothing outside$' "$work/checked.out")" = 8 ] ||
  { echo "canary: $(grep ^canary "$work/checked.out")"; failures=$((failures + 1)); }
[ "$(grep -o '"rank [0-7] pp [01] tp [01] dp [01]"' "$work/gpt.json" | sort -u | wc -l)" = 8 ] ||
  { echo "trace: names of ranks"; failures=$((failures + 1)); }

if [ -n "$MPIRUN" ]; then
  mpi gpt_mpi gpt --sync-send --check-identity --jitter=5
  equal gpt gpt_mpi
  mpi llama_mpi llama
  equal llama llama_mpi
  run few 3 timeout -k 5 10 "$MPIRUN" -n 4 "$BIN/piperun" "$work/gpt.ppx"
  lines few 1 '^error\[E0901\]: program wants 8 ranks, mpirun started 4; use `mpirun -n 8`$'
fi

# A rank that is lost within a tensor-parallel group: it is named, so is who waits for it in a body.
run lost 5 env PP_FAULT=5:3:fail timeout -k 5 20 "$BIN/piperun" -q --transport=loop "$work/llama.ppx"
lines lost 1 '^error\[E0904\]: rank 5 \(pp 1 tp 1 dp 0\) failed: planted fault: failure at instruction 3; '
lines lost 1 '^piperun: rank 4 \(pp 1 tp 0 dp 0\) waits: a collective of its tp group in fwd s1 m0 .*; rank 5 \(pp 1 tp 1 dp 0\)'

# A loss that is not finite in one replica only: that one is named, though the losses of all are summed.
forward=$("$BIN/pipedump" --view=list --rank=1 "$work/llama.ppx" | awk '$2 == "F" { print $1 }' | sed -n 2p)
run nan 5 env PP_FAULT="6:$forward:nan" timeout -k 5 60 "$BIN/piperun" -q --transport=loop "$work/llama.ppx"
lines nan 1 '^error\[E0905\]: loss is not finite at step 3, microbatch 1, stage 1, rank [67] \(pp 1 tp [01] dp 1\) \(3 steps in a row; no update was made\)$'
finish
