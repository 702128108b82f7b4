#!/usr/bin/env bash
# piperun without MPI: command line, refusals, faults, signals. Usage: piperun_loop.sh BIN
BIN=$1
. "$(dirname "$0")/check.sh"
unset OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK
"$BIN/write_sample" 4 1 4 16 >"$work/four.pps"
"$BIN/write_training" 2 1 4 untied 16 >"$work/gpt.pps"

run fine 0 "$BIN/piperun" "$work/four.pps" --steps=2 --metrics="$work/m.jsonl" --trace="$work/t.json"
lines fine 1 '^piperun: not started by mpirun: 4 ranks run as threads of this process \(--transport=loop\)$'
[ "$(grep -c '"schema": "piperun.step/1", "step": ' "$work/m.jsonl")" = 2 ] || { echo "metrics: want two lines"; failures=1; }
[ "$(grep -c '"ph": "X"' "$work/t.json")" -gt 200 ] || { echo "trace: want more than 200 slices"; failures=1; }

# A profile: a row for each stage and phase, rank and kind of tail work; the table of instructions beside it.
run profile 0 "$BIN/piperun" "$work/gpt.pps" --steps=3 --profile="$work/p.json"
profile_rows() { grep -c "$1" "$work/p.json"; }
[ "$(profile_rows '^{"stage": [01], "phase": "[FB]", "median": [1-9]')" = 4 ] || { echo "profile: want four rows of bodies"; failures=1; }
[ "$(profile_rows '^{"rank": [01], "op": "opt"')" = 2 ] || { echo "profile: want two rows of updates"; failures=1; }
[ "$(profile_rows '"transport": "loop", "device": "cpu", "time_unit": "ns", "steps": 2,$')" = 1 ] || { echo "profile: want two counted steps"; failures=1; }
[ "$(grep -cE '^ (fwd|bwd|opt|wait recv|wait send) ' "$work/profile.out")" = 5 ] || { echo "profile: want a table of instructions"; failures=1; }
# The trace and the profile of one run, each beside the prediction, say the same.
run both 0 "$BIN/piperun" -q --transport=loop "$work/gpt.pps" --steps=4 --trace="$work/b.trace" --profile="$work/b.json"
run from_trace 0 "$BIN/pipedump" "$work/gpt.pps" --diff="$work/b.trace" --format=json
run from_profile 0 "$BIN/pipedump" "$work/gpt.pps" --diff="$work/b.json" --format=json
[ "$(grep -c '"schema": "pipec.diff/1".*"steps": 3, .*"instructions": \[{"instruction": "load"' "$work/from_trace.out")" = 1 ] || { echo "diff: want a table of instructions"; failures=1; }
sed -i 's/"instructions": \[[^]]*\], //' "$work/from_trace.out"
same from_trace from_profile
run text 0 "$BIN/pipedump" "$work/gpt.pps" --diff="$work/b.trace"
[ "$(grep -cE '^(ranks|bodies|channels|time of all ranks per step), ' "$work/text.out")" = 4 ] || { echo "diff: want four tables"; failures=1; }
# What is no trace of this program is refused where it begins to differ.
run other_trace 1 "$BIN/pipedump" "$work/gpt.pps" --diff="$work/t.json"
lines other_trace 1 '^pipedump: .*/t.json:[0-9]+:[0-9]+: `fwd|`F` where instruction|^pipedump: .*/t.json:[0-9]+:[0-9]+: .*a trace of another program$|rank 2, but the program has 2'
head -c 9000 "$work/b.trace" >"$work/cut.trace"
run cut_trace 1 "$BIN/pipedump" "$work/gpt.pps" --diff="$work/cut.trace"
lines cut_trace 1 '^pipedump: .*/cut.trace:[0-9]+:[0-9]+: '
run other_profile 1 "$BIN/pipedump" "$work/four.pps" --diff="$work/b.json"
lines other_profile 1 '^pipedump: .*/b.json is of 2 stages on 2 pipeline ranks, .*/four.pps has 4 on 4$'
run neither 1 "$BIN/pipedump" "$work/four.pps" --diff="$0"
lines neither 1 ' is neither a trace nor a profile of piperun$'

run noprofile 3 "$BIN/piperun" -q "$work/four.pps" --profile="$work/none/p.json"
lines noprofile 1 '^piperun: cannot write beside .*/none/p.json: No such file or directory$'

# One step is all warm-up: no profile of it; a trace says so. An evaluation is in neither.
run one_profile 2 "$BIN/piperun" -q --transport=loop "$work/four.pps" --steps=1 --profile="$work/one.json"
lines one_profile 1 '^piperun: --profile=.*/one.json: one step is not enough, since the first one warms caches up and is left out; ask for more with --steps$'
[ -e "$work/one.json" ] && { echo "one_profile: written"; failures=1; }
run one_trace 0 "$BIN/piperun" --transport=loop "$work/four.pps" --steps=1 --trace="$work/one.trace"
[ "$(grep -c '^note: of a single step: measured times include warming caches up$' "$work/one_trace.out")" = 1 ] || { echo "one_trace: want a note"; failures=1; }
# Stopped long before the steps it was to keep: only those that ran count.
touch "$work/stop"
run stopped 0 "$BIN/piperun" -q --transport=loop "$work/four.pps" --steps=100000000 --profile="$work/stopped.json" --stop-file="$work/stop"
! grep -qE '"median": 0, "spread": 0, "count": [0-9]+, "flops"' "$work/stopped.json" 2>/dev/null || { echo "stopped: steps that did not run count"; failures=1; }
run no_folder 3 "$BIN/piperun" -q --transport=loop "$work/four.pps" --stop-file="$work/none/x"
lines no_folder 1 '^piperun: --stop-file=.*/none/x: cannot look into .*/none: No such file or directory$'
run no_report 3 "$BIN/piperun" -q --transport=loop "$work/four.pps" --report="$work/none/x"
lines no_report 1 '^piperun: cannot write beside .*/none/x: No such file or directory$'

run quiet 0 "$BIN/piperun" -q "$work/four.pps" --transport=loop --jitter=3 --check-identity --sync-send
[ -s "$work/quiet.out" ] && { echo "quiet: want no output"; failures=1; }
lines quiet 0 .

run later 2 "$BIN/piperun" --verify "$work/four.pps"
lines later 1 '^piperun: --verify is not supported yet$'
run operands 2 "$BIN/piperun"
lines operands 1 '^piperun: want one program to run, got 0; see piperun --help$'
run threads 2 "$BIN/piperun" --threads=2 "$work/four.pps"
run missing 3 "$BIN/piperun" "$work/none.ppx"
lines missing 1 '^piperun: cannot open .*/none.ppx: No such file or directory$'
run processes 2 env OMPI_COMM_WORLD_SIZE=4 "$BIN/piperun" --transport=loop "$work/four.pps"

run trace 3 "$BIN/piperun" -q --transport=loop "$work/four.pps" --trace="$work/none/t.json"
lines trace 1 '^piperun: cannot write the trace to .*/none/t.json: No such file or directory$'
run metrics 3 "$BIN/piperun" -q --transport=loop "$work/four.pps" --metrics="$work/none/m.jsonl"
lines metrics 1 '^piperun: cannot write metrics to .*/none/m.jsonl: No such file or directory$'
run nodata 2 "$BIN/piperun" -q --transport=loop "$work/four.pps" --data=/etc/hostname
lines nodata 1 '^piperun: --data=/etc/hostname: this program reads no data$'
run nofile 3 "$BIN/piperun" -q --transport=loop "$work/gpt.pps" --data="$work/none"
lines nofile 1 '^piperun: cannot open data file .*/none: No such file or directory$'

# A program that is not proven does not run.
sed 's/fwd s1 m0/fwd s1 m1/' "$work/four.pps" >"$work/twice.pps"
run unproven 1 "$BIN/piperun" "$work/twice.pps"
lines unproven 1 '^error\[V2\]: rank 1, instruction 9 `fwd s1 m1` reads `in` from recv.0 and expects act s0 m1'

# No offsets: refused, with advice.
sed -E 's/^(slot .*) at [0-9]+$/\1/' "$work/four.pps" >"$work/unplaced.pps"
run unplaced 3 "$BIN/piperun" "$work/unplaced.pps"
lines unplaced 1 '64 slots have no offset in the arena; plan them with `pipec build'

# A rank that leaves silently, fails, sleeps for ever, or never posts.
for fault in exit fail sleep skip; do
  run "$fault" 5 env PP_FAULT=2:8:$fault timeout -k 5 60 "$BIN/piperun" -q --timeout=4 --timeout-first=4 "$work/four.pps"
  for rank in 0 1 3; do
    lines "$fault" 1 "^piperun: rank $rank waits: "
  done
  lines "$fault" 1 '^piperun: rank 1 waits: recv grad s2 m0 from rank 2 for [0-9.]+ s \(step 1, instruction 20 of 40\); rank 2.s last instruction: '
  lines "$fault" 1 '^piperun: rank 3 waits: recv act s2 m0 from rank 2 for '
done
lines exit 1 '^error\[E0904\]: rank 2 is gone: .*; last instruction: wait for recv act s1 m0 \(step 1, instruction 8 of 40\)$'
lines fail 1 '^error\[E0904\]: rank 2 failed: planted fault: failure at instruction 8; last instruction: wait for recv act s1 m0 \(step 1, instruction 8 of 40\)$'
lines sleep 1 '^error\[E0904\]: rank 2 is waited for and does not get on with its work; last instruction: wait for recv act s1 m0 \(step 1, instruction 8 of 40\) \(no rank has moved for [0-9.]+ s, the limit is that of --timeout-first\)$'
lines skip 1 '^error\[E0904\]: rank 2 never posted its instruction 10, send act s2 m0; '
lines fail 1 'planted fault'

# A limit that was asked for holds, even where 20 predicted steps (here 15 minutes) take longer.
"$BIN/pipec" build -q "$(dirname "$0")/../../samples/minimal.pipe" --set cluster.gpu.flops.fp32=10MFLOPS -o "$work/slow.ppx"
run patience 5 env PP_FAULT=2:8@2:sleep timeout -k 5 60 "$BIN/piperun" -q --timeout=4 "$work/slow.ppx"
lines patience 1 '^error\[E0904\]: rank 2 .* the limit is that of --timeout\)$'

# Signals: every rank says where it is, also one that sleeps.
PP_FAULT=2:8:sleep "$BIN/piperun" -q "$work/four.pps" 2>"$work/term.err" &
pid=$!
for _ in $(seq 100); do
  grep -q State:.*S "/proc/$pid/status" && [ "$(ls "/proc/$pid/task" | wc -l)" -ge 5 ] && break
  sleep 0.1
done
sleep 0.5
kill -TERM $pid
wait $pid
[ $? = 5 ] || { echo "term: want exit code 5"; failures=1; }
lines term 4 '^piperun: rank [0-3] (waits|runs|is)\b'
lines term 1 '^piperun: rank 0 was stopped by SIGTERM$'
finish
