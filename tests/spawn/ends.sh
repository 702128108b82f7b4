#!/usr/bin/env bash
# However a run of --spawn ends, one report says why, its code is that of a failed run, and no process stays behind.
# Usage: ends.sh BIN PARITY killed|failed|stopped|signals
BIN=$1
PARITY=$2
. "$(dirname "$0")/../conformance/check.sh"
unset OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK
run build 0 "$BIN/pipec" build -q "$PARITY/model.pipe" -D pp=3 --set cluster.gpus=3 --set run.steps=100000 -o "$work/m.ppx"

case $3 in
killed)
  run killed 5 env PP_FAULT=1:9:kill timeout -k 5 30 "$BIN/piperun" -q --spawn=3 "$work/m.ppx"
  lines killed 1 '^piperun: rank 1 was ended by signal 9 '
  lines killed 1 '^error\[E0904\]: rank 1 is gone: '
  finish
  ;;
failed)
  run failed 5 env PP_FAULT=2:9:fail timeout -k 5 30 "$BIN/piperun" -q --spawn=3 "$work/m.ppx"
  lines failed 1 '^error\[E0904\]: rank 2 failed: planted fault'
  run exited 5 env PP_FAULT=0:9:exit timeout -k 5 30 "$BIN/piperun" -q --spawn=3 "$work/m.ppx"
  lines exited 1 '^error\[E0904\]: rank 0 is gone: '
  # Too few files: as many as may be are taken, and where that is not enough it is said.
  only='exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit $LIMIT 6; exec "$@"'
  run soft 0 env LIMIT='-S -n' bash -c "$only" soft timeout -k 5 30 "$BIN/piperun" -q --spawn=3 --steps=1 "$work/m.ppx"
  run hard 3 env LIMIT=-n bash -c "$only" hard timeout -k 5 30 "$BIN/piperun" -q --spawn=3 --steps=1 "$work/m.ppx"
  lines hard 1 '^piperun: rank 0 keeps a connection to each of 3 ranks, but may have 6 files open: raise the limit to [0-9]* '
  finish
  ;;
stopped)
  run stopped 5 env PP_FAULT=1:9:stop timeout -k 5 30 "$BIN/piperun" -q --spawn=3 --timeout-heartbeat=1 "$work/m.ppx"
  lines stopped 1 '^error\[E0904\]: rank 1 is paused: its process is stopped'
  finish
  ;;
esac

# begin: a run in the background; $parent and $children are its processes, once it trains.
begin() {
  : >"$work/metrics"
  "$BIN/piperun" -q --spawn=3 --metrics="$work/metrics" "$work/m.ppx" >"$work/run.out" 2>"$work/run.err" </dev/null &
  parent=$!
  for _ in $(seq 200); do
    [ -s "$work/metrics" ] && break
    sleep 0.05
  done
  children=$(cat "/proc/$parent/task/$parent/children")
  [ "$(wc -w <<<"$children")" = 3 ] || { echo "want three processes, have: $children"; failures=$((failures + 1)); }
}

# gone WHAT: none of the children is left after three seconds.
gone() {
  for child in $children; do
    for _ in $(seq 60); do
      [ -e "/proc/$child" ] || break
      [ "$(cut -d' ' -f3 "/proc/$child/stat" 2>/dev/null)" = Z ] && break
      sleep 0.05
    done
    if [ -e "/proc/$child" ] && [ "$(cut -d' ' -f3 "/proc/$child/stat" 2>/dev/null)" != Z ]; then
      echo "$1: process $child is left"
      failures=$((failures + 1))
      kill -9 "$child"
    fi
  done
}

# ended WHAT CODE
ended() {
  local code=0
  wait "$parent" || code=$?
  [ "$code" = "$2" ] || { echo "$1: exit code $code, wanted $2"; sed 's/^/  /' "$work/run.err"; failures=$((failures + 1)); }
  gone "$1"
}

begin
kill -TERM "$parent"
ended terminated 5
begin
kill -USR1 "$parent"
ended asked 0
begin
kill -INT "$parent"
ended interrupted 0
begin
kill -KILL "$parent"
ended killed 137
finish
