#!/usr/bin/env bash
# Training with --spawn gives the losses and weights of threads, bit for bit. Usage: runs.sh BIN PARITY
BIN=$1
PARITY=$2
. "$(dirname "$0")/../conformance/check.sh"
unset OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK SLURM_STEP_NUM_TASKS SLURM_NTASKS

# build NAME MODEL PP TP DP OPTIONS...
build() {
  run "build_$1" 0 "$BIN/pipec" build -q "$PARITY/$2.pipe" -D "pp=$3" --set "parallel.tp=$4" --set "parallel.dp=$5" \
    --set "cluster.gpus=$(($3 * $4 * $5))" --set run.steps=2 -o "$work/$1.ppx" "${@:6}"
}

# both NAME RANKS OPTIONS...: the same output, metrics but for times included
both() {
  run "$1_loop" 0 "$BIN/piperun" -q --transport=loop "$work/$1.ppx" --weights-hash --metrics="$work/loop.jsonl"
  run "$1_spawn" 0 "$BIN/piperun" -q --spawn="$2" "$work/$1.ppx" --weights-hash --metrics="$work/spawn.jsonl" "${@:3}"
  for name in loop spawn; do
    sed -E 's/, "tokens_per_s".*//' "$work/$name.jsonl" >>"$work/$1_$name.out"
  done
  [ "$(wc -l <"$work/$1_loop.out")" -gt 10 ] || { echo "$1: no output"; failures=$((failures + 1)); }
  same "$1_loop" "$1_spawn"
}

build gpt model 2 2 2 --set parallel.sp=true --set parallel.zero=1 -D tied=true --schedule h1
both gpt 8 --check-identity --jitter=5
build llama llama 2 1 2 --schedule 1f1b
both llama 4 --queues=pair
build one model 1 1 1
both one 1

run few 3 "$BIN/piperun" --spawn=4 "$work/gpt.ppx"
lines few 1 '^error\[E0901\]: program wants 8 ranks, --spawn=4 starts 4; use `--spawn=8`$'
run launched 2 env OMPI_COMM_WORLD_SIZE=8 "$BIN/piperun" --spawn=8 "$work/gpt.ppx"
lines launched 1 '^piperun: --spawn starts the ranks itself: give it, or use mpirun$'

# What Slurm and PMIx say: --mpi=pmix sets no size of its own; a batch script's tasks are no job of ranks; a launcher may
# start just the one that spawns the others.
run pmix 2 env PMIX_RANK=3 SLURM_STEP_NUM_TASKS=8 SLURM_NTASKS=9 "$BIN/piperun" --transport=loop "$work/gpt.ppx"
lines pmix 1 '^piperun: --transport=loop runs all ranks in one process, but the launcher started 8$'
run tasks 2 env PMIX_RANK=0 SLURM_NTASKS=8 "$BIN/piperun" --spawn=8 "$work/gpt.ppx"
lines tasks 1 '^piperun: --spawn starts the ranks itself: give it, or use mpirun$'
run batch 0 env SLURM_NTASKS=8 "$BIN/piperun" -q "$work/one.ppx"
run alone_pmi 0 env PMI_SIZE=1 PMI_RANK=0 "$BIN/piperun" -q --spawn=4 "$work/llama.ppx"
run alone_pmix 0 env PMIX_RANK=0 SLURM_STEP_NUM_TASKS=1 "$BIN/piperun" -q --spawn=4 "$work/llama.ppx"

run loop 2 "$BIN/piperun" --spawn=8 --transport=loop "$work/gpt.ppx"
lines loop 1 '^piperun: --spawn has a transport of its own'
finish
