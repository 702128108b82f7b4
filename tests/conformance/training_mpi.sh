#!/usr/bin/env bash
# Training under mpirun gives the losses and weights of one rank without MPI, bit for bit, in every mode of the transport.
# Also field cases B01 ((p, m) = (4, 2), (8, 1)), B13, B41. Usage: training_mpi.sh BIN MPIRUN
BIN=$1
MPIRUN=$2
. "$(dirname "$0")/check.sh"

# losses NAME: what of NAME.jsonl does not depend on time, before the hashes of its output.
losses() {
  sed -E 's/.*("step": .*), "tokens_per_s".*/\1/' "$work/$1.jsonl" >"$work/$1.losses"
  cat "$work/$1.losses" "$work/$1.out" >"$work/$1.both" && mv "$work/$1.both" "$work/$1.out"
}

# compare RANKS CHUNKS MICROBATCHES TIED WIDTH OPTIONS...: mpi on that many ranks against one rank.
compare() {
  local ranks=$1 chunks=$2 m=$3 tied=$4 width=$5
  shift 5
  local one=one_${m}_${tied}_$width many=many_${ranks}_${chunks}_${m}_${tied}_${width}_$#
  if [ ! -e "$work/$one.out" ]; then
    "$BIN/write_training" 1 1 "$m" "$tied" "$width" >"$work/$one.pps" || failures=1
    run "$one" 0 env -u OMPI_COMM_WORLD_SIZE "$BIN/piperun" -q "$work/$one.pps" --transport=loop --weights-hash --metrics="$work/$one.jsonl"
    losses "$one"
  fi
  "$BIN/write_training" "$ranks" "$chunks" "$m" "$tied" "$width" >"$work/$many.pps" || failures=1
  run "$many" 0 timeout -k 5 60 "$MPIRUN" -n "$ranks" "$BIN/piperun" -q "$work/$many.pps" --weights-hash --metrics="$work/$many.jsonl" "$@"
  losses "$many"
  same "$one" "$many"
}

compare 2 1 4 untied 32
compare 4 1 4 tied 32 --sync-send --check-identity --jitter=11
compare 2 2 4 tied 32 --sync-send
compare 4 1 2 untied 32
compare 8 1 1 tied 32
[ "$(wc -l <"$work/one_4_tied_32.losses")" = 6 ] || { echo "want six steps"; failures=1; }
grep -q '^weights block.5.mlp' "$work/one_4_tied_32.out" || { echo "want hashes of weights"; failures=1; }

# A token out of range, which only the rank of the labels sees when it reads: one cause, and the exit code of a run that failed after it had begun.
head -c 20 /dev/zero >"$work/tokens"
printf '\377' >>"$work/tokens"
"$BIN/write_training" 2 1 4 untied 8 >"$work/two.pps" || failures=1
run bad_mpi 5 timeout -k 5 60 "$MPIRUN" -n 2 "$BIN/piperun" -q --data="$work/tokens" "$work/two.pps"
run bad_loop 5 timeout -k 5 60 "$BIN/piperun" -q --transport=loop --data="$work/tokens" "$work/two.pps"
for name in bad_mpi bad_loop; do
  lines $name 1 '^error\[E0904\]: rank [01] failed: data file .*: token 255 at position 20 is not below vocab = .*; last instruction: load '
done
finish
