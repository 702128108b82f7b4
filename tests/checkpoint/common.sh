# Sourced by the tests of checkpoints, after bin and transport are set.
model=$(cd "$(dirname "${BASH_SOURCE[0]}")/../parity" && pwd)/model.pipe
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
unset OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK
failed=0

wrong() { echo "$*"; failed=$((failed + 1)); }

# build NAME RANKS [pipec arguments]: NAME.ppx; RANKS is kept for run.
declare -A ranks
build() {
  local name=$1
  ranks[$name]=$2
  "$bin/pipec" build -q "$model" -D "pp=$2" "${@:3}" --set run.steps=6 -o "$name.ppx"
}

# run NAME [piperun arguments]: prints the hashes of the weights.
run() {
  local launch=("$bin/piperun" --transport=loop)
  [ "$transport" = loop ] || launch=(timeout -k 5 100 mpirun -n "${ranks[$1]}" "$bin/piperun")
  "${launch[@]}" -q --weights-hash "$1.ppx" "${@:2}"
}

losses() { grep -o '"step": [0-9]*\|"microbatch_losses": \[[^]]*\]' "$1"; }

# refused CODE PATTERN [command]: it fails with this code and one line on stderr that matches.
refused() {
  local code=0
  "${@:3}" >out.txt 2>err.txt || code=$?
  [ "$code" = "$1" ] || wrong "want exit code $1, got $code: ${*:3}: $(cat err.txt)"
  [ "$(wc -l <err.txt)" = 1 ] || wrong "want one line: ${*:3}: $(cat err.txt)"
  grep -qE -- "$2" err.txt || wrong "want /$2/, got: $(cat err.txt)"
}

finish() {
  echo "$*; $failed failures"
  [ "$failed" = 0 ]
}
