# Sourced by the tests of faults, after bin and transport (loop, openmpi or mpich) are set: launching with a record of
# each process's exit code, checks of what was reported, resuming.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../conformance/check.sh"
model=$here/../parity/model.pipe
cd "$work"
unset OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK
limits=(--timeout=4 --timeout-first=60 --timeout-heartbeat=8) # more than a loaded machine keeps all ranks waiting
checks=0

wrong() {
  echo "$*"
  failures=$((failures + 1))
}

each=$bin/record_code
export PP_CODES=$work/codes # where each process's rank and code go

# launch NAME RANKS IMAGE [piperun arguments]: output in NAME.out and NAME.err, the launcher's code in $code.
launch() {
  local name=$1 ranks=$2 image=$3 launcher=()
  shift 3
  case $transport in
  loop) launcher=(timeout -k 5 100 "$each" "$bin/piperun" --transport=loop) ;;
  openmpi) launcher=(timeout -k 5 100 mpirun.openmpi -n "$ranks" "$each" "$bin/${piperun:-piperun}") ;;
  # Without the option the launcher kills all ranks as soon as one is lost, before they can say anything.
  mpich) launcher=(timeout -k 5 100 mpiexec.mpich -disable-auto-cleanup -n "$ranks" "$each" "$bin/${piperun:-piperun_mpich}") ;;
  esac
  [ "$transport" != loop ] || ranks=1
  rm -f codes said
  touch codes said
  code=0
  PP_SAID=$work/said "${launcher[@]}" -q "${limits[@]}" --report="$name.report" "$image.ppx" "$@" >"$name.out" 2>"$name.launcher" </dev/null || code=$?
  # The launcher may be gone before the last process.
  for ((i = 0; i < 600 && $(wc -l <codes) < ranks; i++)); do
    sleep 0.1
  done
  cp said "$name.err" # past the launcher, which may drop what is said last; the report as it stands in its file
  if [ -e "$name.report" ]; then
    { grep -vE '^(piperun: rank |error\[E0904\])' "$name.err"; cat "$name.report"; } >"$name.all"
    mv "$name.all" "$name.err"
  fi
  [ "$code" != 124 ] && [ "$code" != 137 ] || [ -n "$(grep 137 codes)" ] || wrong "$name: the launcher did not end by itself: $code"
}

# ended NAME CODES: the exit codes of all processes, in the order of ranks; each may be a pattern (5|137).
ended() {
  local name=$1 rank=0 wanted
  shift
  checks=$((checks + 1))
  for wanted in "$@"; do
    grep -qxE "$rank ($wanted)" codes || { wrong "$name: rank $rank should end with $wanted; codes: $(sort codes | tr '\n' ' ')"; said "$name"; }
    rank=$((rank + 1))
  done
}

said() {
  sed 's/^/  /' "$1.err"
}

# report NAME CULPRIT [WAITING...]: one line names the culprit (a regular expression after `error[E0904]: `), and one
# line each stands for these waits.
report() {
  local name=$1 culprit=$2
  shift 2
  lines "$name" 1 "^error\\[E0904\\]: $culprit"
  for waiting in "$@"; do
    lines "$name" 1 "^piperun: $waiting"
  done
  checks=$((checks + 1))
}

# The checkpoint FOLDER holds goes on to the weights in WANTED (on threads: the bits are the same).
goes_on() {
  local name=$1 image=$2 folder=$3 wanted=$4
  "$bin/piperun" -q --transport=loop "$image.ppx" --resume="$folder" --weights-hash >"$name.weights" 2>"$name.resume" || wrong "$name: cannot go on: $(cat "$name.resume")"
  cmp -s "$name.weights" "$wanted" || wrong "$name: other weights after going on"
  checks=$((checks + 1))
}

done_with() {
  [ "$checks" -gt 0 ] || wrong "nothing was checked"
  echo "$checks checks, $failures failures"
  [ "$failures" = 0 ]
}
