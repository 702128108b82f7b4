#!/usr/bin/env bash
# The three tools say the same numbers of one program, also where a step is long and its stages are short.
# Usage: figures.sh BIN SAMPLES
BIN=$1
samples=$2
. "$(dirname "$0")/check.sh"
unset OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK

# says NAME FILE TEXT: the file holds the text.
says() {
  grep -qF -- "$3" "$2" || { echo "$1: want \`$3\` in:"; sed 's/^/  /' "$2"; failures=$((failures + 1)); }
}

run build 0 "$BIN/pipec" build "$samples/minimal.pipe" -o "$work/m.ppx"
run stages 0 "$BIN/pipec" build "$samples/minimal.pipe" --emit=stages
run stats 0 "$BIN/pipedump" "$work/m.ppx" --view=stats
run map 0 "$BIN/pipedump" "$work/m.ppx" --view=map
run json 0 "$BIN/pipedump" "$work/m.ppx" --format=json
run train 0 "$BIN/piperun" "$work/m.ppx" --steps=2
says summary "$work/build.err" 'bubble 32.3 % of the makespan, 0.0 % above the lower bound; peak 2.9 MiB (rank 0)'
says stats "$work/stats.out" 'bubble 32.3 % of makespan'
says stats "$work/stats.out" 'memory: rank 0 needs most, 2.9 MiB live'
says stats "$work/stats.out" ' step: 6719.688 us = makespan'
says stats "$work/stats.out" 'r0     4143.04  34.0 %'
says json "$work/json.out" '"makespan": 6280282, "tail": 439406'
says train "$work/train.out" 'step                 6.720 ms'
says train "$work/train.out" 'idle of rank 0         34.0 %'
says train "$work/train.out" 'arena 2.89 MiB'
says stages "$work/stages.out" '0     0  118400        1.81      0.252  0.1743  0.2049  0.1387  emb, block[0..1]'
says map "$work/map.out" '118k  174.278  343.602  204.868  138.734  258.0 KiB'

run long 0 "$BIN/pipec" build -q "$samples/minimal.pipe" --set train.microbatches=20000 -o "$work/long.ppx"
run long_stats 0 "$BIN/pipedump" "$work/long.ppx" --view=stats
run long_map 0 "$BIN/pipedump" "$work/long.ppx" --view=map
says long_stats "$work/long_stats.out" ' step: 11.758 s = makespan'
says long_stats "$work/long_stats.out" 'costs: F 171.372..202.089, B 338.768..385.682 us per stage'
says long_map "$work/long_map.out" '118k  174.278  343.602  204.868  138.734  258.0 KiB'
says long_map "$work/long_map.out" 'F B I W: predicted us per microbatch'

# The examples of the manual compile.
manual=$samples/../docs/language.md
awk -v folder="$work" '/^```pipe$/ { file = folder "/manual" ++n ".pipe"; next } /^```$/ { file = ""; next } file { print > file }' "$manual"
run manual 0 "$BIN/pipec" check -q -W "$work"/manual*.pipe

# The session in the README is what the tools print.
readme=$samples/../README.md
session() { sed -n "/^\$ $1/,/^\$ $2/p" "$readme" | sed '1d;$d'; }
(cd "$work" && cp "$work/m.ppx" minimal.ppx && LC_ALL=C "$BIN/pipedump" minimal.ppx) >"$work/dump.out"
session 'pipedump minimal' mpirun | diff - "$work/dump.out" || { echo "the README shows another pipedump"; failures=$((failures + 1)); }
says readme "$readme" "$(sed "s,^.*/samples/,samples/,; s,-> .*/m.ppx:,-> minimal.ppx:," "$work/build.err")"
finish
