#!/usr/bin/env bash
# Output that cannot be written is an error of every tool, never a quiet success; and mistakes on command lines. Usage: output.sh BIN SAMPLES
BIN=$1
samples=$2
. "$(dirname "$0")/check.sh"
unset OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK
full='cannot write .*: No space left on device$'

# full NAME COMMAND...: with a standard output that takes nothing, ends with $wanted.
wanted=3
full() {
  local name=$1
  shift
  run "$name" $wanted bash -c '"$@" >/dev/full' bash "$@"
  lines "$name" 1 '^[a-z]+: cannot write standard output: No space left on device$'
}

"$BIN/pipec" build -q "$samples/minimal.pipe" -o "$work/m.ppx"
"$BIN/pipedump" "$work/m.ppx" --format=pps >"$work/m.pps"
for level in ast spec stages schedule program; do
  full "emit_$level" "$BIN/pipec" build "$samples/minimal.pipe" --emit=$level
done
full verify "$BIN/pipec" verify "$work/m.ppx"
full predict "$BIN/pipec" predict "$samples/minimal.pipe"
full plan "$BIN/pipec" plan "$samples/minimal.pipe" --vary schedule=1f1b
run profile_full 5 "$BIN/piperun" -q "$work/m.ppx" --steps=2 --profile=/dev/full
lines profile_full 1 "^piperun: $full"
full pipec_help "$BIN/pipec" --help
full pipedump "$BIN/pipedump" "$work/m.ppx"
full pipedump_help "$BIN/pipedump" --help
wanted=5 full piperun "$BIN/piperun" "$work/m.ppx" --steps=2
full piperun_help "$BIN/piperun" --help

run image 3 "$BIN/pipec" build "$samples/minimal.pipe" -o /dev/full
lines image 1 "^pipec: $full"
run emit_file 0 "$BIN/pipec" build "$samples/minimal.pipe" --emit=program -o "$work/emitted"
run emit_stdout 0 "$BIN/pipec" build "$samples/minimal.pipe" --emit=program
cmp "$work/emitted" "$work/emit_stdout.out" || failures=1
[ -s "$work/emit_file.out" ] && { echo "emit_file: want nothing on standard output"; failures=1; }
run emit_full 3 "$BIN/pipec" build "$samples/minimal.pipe" --emit=stages -o /dev/full
lines emit_full 1 "^pipec: $full"
run dump 3 "$BIN/pipedump" "$work/m.ppx" -o /dev/full
lines dump 1 "^pipedump: $full"
run trace 5 "$BIN/piperun" -q "$work/m.ppx" --steps=2 --trace=/dev/full
lines trace 1 '^piperun: cannot write the trace to /dev/full'
run metrics 5 "$BIN/piperun" -q "$work/m.ppx" --steps=2 --metrics=/dev/full
lines metrics 1 '^error\[E0904\]: rank 0 failed: cannot write metrics to /dev/full: No space left on device; '

# Mistakes on pipec's command line.
run file 2 "$BIN/pipec" "$work/m.pipe"
lines file 1 'is no command; commands are build, check, predict, plan, verify, show, import; did you mean `pipec build .*/m.pipe`\?$'
run dump_command 2 "$BIN/pipec" dump "$work/m.ppx"
lines dump_command 1 'is no command; .*; did you mean `pipedump`\?$'
head -c 300 "$BIN/pipec" >"$work/binary.pipe"
run binary 3 "$BIN/pipec" build "$work/binary.pipe"
lines binary 1 '^pipec: .*/binary.pipe holds binary data, not a spec or a program text$'
lines binary 1 .
# What is printed of a level is what is built, where memory has led to another order after that level, too.
sed 's/  timeout = 1us//' "$samples/../tests/diag/compile/search_timeout_tight.pipe" >"$work/tight.pipe"
run emit 0 "$BIN/pipec" build "$work/tight.pipe" --emit=schedule
run tight 0 "$BIN/pipec" build -q "$work/tight.pipe" -o "$work/tight.ppx"
run grid 0 "$BIN/pipedump" "$work/tight.ppx" --format=csv
tr -s , <"$work/grid.out" | sed 's/^,//; s/,$//' | cmp - "$work/emit.out" || { echo "--emit=schedule is not the order that is built"; failures=1; }
printf '0F0,0F1,0B0,0B1\n' >"$work/order.csv"
for command in build predict plan show; do
  run csv 2 "$BIN/pipec" $command "$work/order.csv"
  lines csv 1 'order.csv is a schedule of PyTorch, not a spec; `pipec import csv .*/order.csv` prints it'
  lines csv 1 .
done
run help 0 "$BIN/pipec" import --help
grep -q '^pipec import csv ' "$work/help.out" && ! grep -q '^pipec build ' "$work/help.out" ||
  { echo "want examples of import alone"; head -n 5 "$work/help.out"; failures=1; }
iconv -f UTF-8 -t UTF-16 "$samples/minimal.pipe" >"$work/utf16.pipe"
run utf16 1 "$BIN/pipec" build "$work/utf16.pipe"
lines utf16 1 '^error\[E0007\]: text is in UTF-16, wanted UTF-8$'


# The summary: after the warnings, names the image; an object like the messages' with --diagnostics=json.
grep -v '^assert' "$samples/minimal.pipe" >"$work/minimal.pipe"
one=(--set parallel.pp=1 --set cluster.gpus=1 --set train.microbatches=1)
two=(--set train.microbatches=2)
run summary 0 "$BIN/pipec" build "$work/minimal.pipe" "${two[@]}" -o "$work/two.ppx"
lines summary 1 '^warning\[W0601\]'
tail -n 1 "$work/summary.err" | grep -qE 'minimal.pipe -> .*/two.ppx: 4 ranks = tp 1 x pp 4 x dp 1, 4 stages, m = 2, ' || {
  echo "summary: want it last:"; cat "$work/summary.err"; failures=1; }
run summary_json 0 "$BIN/pipec" check --diagnostics=json "$work/minimal.pipe" "${two[@]}"
lines summary_json 1 '^\{"schema": "pipec.diagnostic/1", "severity": "warning", "code": "W0601", '
lines summary_json 1 '^\{"schema": "pipec.summary/1", "file": "[^"]*/minimal.pipe", "tp": 1, "pp": 4, "dp": 1, "stages": 4, "microbatches": 2, "schedule": "1f1b", "time_unit": "ns", "makespan": [0-9]+, .*"peak_rank": [0-3], "split": \{"makespan": .*\}, "layouts": \["channel", .*\]\}$'
lines summary_json 2 .
run summary_one 0 "$BIN/pipec" check "$work/minimal.pipe" "${one[@]}"
lines summary_one 1 'minimal.pipe: 1 rank = tp 1 x pp 1 x dp 1, 1 stage, m = 1, '

# Metrics are on disk step by step: a run that ends early leaves the lines of the steps before.
"$BIN/pipec" build -q "$samples/custom_costs.pipe" --set run.steps=1000 -o "$work/c.ppx"
"$BIN/piperun" -q "$work/c.ppx" --metrics="$work/c.jsonl" 2>"$work/killed.err" &
pid=$!
for _ in $(seq 200); do
  [ -s "$work/c.jsonl" ] && break
  sleep 0.1
done
kill -KILL $pid
wait $pid 2>/dev/null
grep -q '"step": 1,.*}$' "$work/c.jsonl" || { echo "metrics: want step 1 on disk while the run goes on"; failures=1; }
finish
