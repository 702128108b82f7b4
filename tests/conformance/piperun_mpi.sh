#!/usr/bin/env bash
# piperun under mpirun: start checks (field case B39). Usage: piperun_mpi.sh BIN MPIRUN
BIN=$1
MPIRUN=$2
. "$(dirname "$0")/check.sh"
"$BIN/write_sample" 4 1 4 16 >"$work/four.pps"
"$BIN/write_sample" 4 1 4 32 >"$work/other.pps"

for ranks in 1 3 6; do
  run "start_$ranks" 3 timeout -k 5 60 "$MPIRUN" -n $ranks "$BIN/piperun" "$work/four.pps"
  lines "start_$ranks" 1 "^error\[E0901\]: program wants 4 ranks, mpirun started $ranks; use \`mpirun -n 4\`\$"
done

# A launcher of another MPI, or srun without --mpi: each process is a job of its own. Process 0 says so, all end.
unset OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK
run apart 3 env PMI_SIZE=4 PMI_RANK=0 timeout -k 5 60 "$BIN/piperun" "$work/four.pps"
lines apart 1 '^error\[E0901\]: the launcher started 4 processes, but MPI made each a job of its own: '
run apart_1 3 env PMI_SIZE=4 PMI_RANK=1 timeout -k 5 60 "$BIN/piperun" "$work/four.pps"
lines apart_1 0 .
run tasks 0 env SLURM_STEP_NUM_TASKS=4 timeout -k 5 60 "$BIN/piperun" "$work/four.pps" --steps=1
lines tasks 1 "^piperun: each of srun's 4 tasks runs the whole program by itself; "

cat >"$work/differ" <<SCRIPT
#!/bin/sh
case \$OMPI_COMM_WORLD_RANK\$PMI_RANK in
3) exec "$BIN/piperun" "$work/other.pps" ;;
*) exec "$BIN/piperun" "$work/four.pps" ;;
esac
SCRIPT
chmod +x "$work/differ"
run differ 3 timeout -k 5 60 "$MPIRUN" -n 4 "$work/differ"
lines differ 1 '^error\[E0902\]: rank 3 loaded a different program \(hash [0-9a-f]{16}, rank 0 has [0-9a-f]{16}\)$'

head -c 400 "$work/four.pps" >"$work/broken.pps"
run broken 1 timeout -k 5 60 "$MPIRUN" -n 4 "$BIN/piperun" "$work/broken.pps"
lines broken 1 '^error\[E1'

run fine 0 timeout -k 5 60 "$MPIRUN" -n 4 "$BIN/piperun" -q "$work/four.pps" --steps=2 --sync-send --check-identity --jitter=5 --trace="$work/t.json" --profile="$work/p.json"
lines fine 0 '^piperun'
[ "$(grep -c '^{"stage": [0-3], "phase": "[FB]", "median": ' "$work/p.json")" = 8 ] || { echo "profile: want 8 rows of bodies"; failures=1; }
[ "$(grep -c '"ph": "X"' "$work/t.json")" -gt 200 ] || { echo "trace: want more than 200 slices"; failures=1; }

# Once training has begun, what cannot be written fails the run, with one code for all ranks.
export PP_CODES=$work/codes
for option in --metrics --trace --profile; do
  : >"$work/codes"
  run "full$option" 5 timeout -k 5 60 "$MPIRUN" -n 4 "$BIN/record_code" "$BIN/piperun" -q "$work/four.pps" --steps=3 --weights-hash $option=/dev/full
  for _ in $(seq 600); do # the launcher may be gone before the last process
    [ "$(wc -l <"$work/codes")" = 4 ] && break
    sleep 0.1
  done
  [ "$(sort "$work/codes" | tr '\n' ' ')" = "0 5 1 5 2 5 3 5 " ] || { echo "full$option: codes $(tr '\n' ' ' <"$work/codes")"; failures=1; }
done
run no_folder 3 timeout -k 5 60 "$MPIRUN" -n 4 "$BIN/piperun" -q "$work/four.pps" --stop-file="$work/none/x"
lines no_folder 1 '^piperun: --stop-file=.*/none/x: cannot look into .*/none: No such file or directory$'
finish
