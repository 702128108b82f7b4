# Sourced by the field cases: BIN and MPIRUN from the command line, a work folder, checks. Usage: B16 BIN [MPIRUN]
BIN=$1
MPIRUN=${2-}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/../conformance/check.sh"
unset OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK
checks=0

# is WHAT ACTUAL WANTED
is() {
  checks=$((checks + 1))
  [ "$2" = "$3" ] && return
  echo "$1: got \`$2\`, wanted \`$3\`"
  failures=$((failures + 1))
}

# near WHAT ACTUAL WANTED TOLERANCE: relative difference at most TOLERANCE.
near() {
  is "$1 ($2 near $3)" "$(awk -v a="$2" -v b="$3" -v t="$4" 'BEGIN { d = a - b; print (d < 0 ? -d : d) <= t * (b < 0 ? -b : b) }')" 1
}

# place SCHEDULE: where its stages live.
place() {
  case $1 in
    zb_v | v_half | v_min | v_adaptive | dualpipe_v | paired | imported) echo v ;;
    *) echo loop ;;
  esac
}

# import SPEC OPTIONS...: $work/SPEC.pipe, which has a schedule `imported` more: the order of zb_v, by way of a file of
# PyTorch's form.
import() {
  local spec=$1
  shift
  run import 0 "$BIN/pipec" build -q "$HERE/$spec.pipe" -o "$work/import.ppx" --schedule zb_v --set stages.place=v "$@"
  "$BIN/pipedump" "$work/import.ppx" --format=csv -o "$work/import.csv" 2>"$work/import.note"
  { cat "$HERE/$spec.pipe" && echo 'schedule imported from csv "import.csv"'; } >"$work/$spec.pipe"
}

# spec_of SPEC OPTIONS...: the file, that of `import` where its schedule is asked for.
spec_of() {
  case " $* " in
    *' imported '*) echo "$work/$1.pipe" ;;
    *) echo "$HERE/$1.pipe" ;;
  esac
}

# build NAME SPEC OPTIONS...: to $work/NAME.ppx, and what is predicted to $work/NAME.json.
build() {
  local name=$1 spec
  spec=$(spec_of "${@:2}")
  shift 2
  run "build_$name" 0 "$BIN/pipec" build -q "$spec" -o "$work/$name.ppx" "$@"
  "$BIN/pipedump" --format=json "$work/$name.ppx" >"$work/$name.json" || failures=$((failures + 1))
}

# emit NAME LEVEL SPEC OPTIONS...: that level as text to $work/NAME.LEVEL.
emit() {
  local name=$1 level=$2 spec
  spec=$(spec_of "${@:3}")
  shift 3
  run "emit_$name" 0 "$BIN/pipec" build -q --emit="$level" "$spec" "$@"
  cp "$work/emit_$name.out" "$work/$name.$level"
}

# number NAME KEY: the first number of that name in NAME.json; numbers: all, in order of ranks.
number() {
  numbers "$1" "$2" | cut -d' ' -f1
}

numbers() {
  grep -oE "\"$2\": [-+.0-9e]+" "$work/$1.json" | sed 's/.*: //' | tr '\n' ' ' | sed 's/ $//'
}

sum() {
  awk '{ for (i = 1; i <= NF; i++) s += $i } END { print s + 0 }'
}

# steps FILE.jsonl: of each step, all that does not depend on time.
steps() {
  sed -E 's/.*("step": .*), "tokens_per_s".*/\1/' "$1"
}

# train NAME IMAGE OPTIONS...: on threads; steps to NAME.steps, hashes of the weights to NAME.weights.
train() {
  local name=$1 image=$2
  shift 2
  run "train_$name" 0 "$BIN/piperun" -q --transport=loop --metrics="$work/$name.jsonl" --weights-hash "$work/$image.ppx" "$@"
  keep "$name"
}

# train_mpi NAME RANKS IMAGE OPTIONS...: the same under mpirun.
train_mpi() {
  local name=$1 ranks=$2 image=$3
  shift 3
  run "train_$name" 0 timeout -k 5 60 "$MPIRUN" -n "$ranks" "$BIN/piperun" -q --metrics="$work/$name.jsonl" --weights-hash "$work/$image.ppx" "$@"
  keep "$name"
}

keep() {
  steps "$work/$1.jsonl" >"$work/$1.steps"
  cp "$work/train_$1.out" "$work/$1.weights"
  [ -s "$work/$1.steps" ] && [ -s "$work/$1.weights" ] || { echo "$1: no metrics or no weights"; failures=$((failures + 1)); }
}

# equal FILE FILE: in the work folder, byte for byte.
equal() {
  checks=$((checks + 1))
  cmp -s "$work/$1" "$work/$2" && return
  echo "$1 and $2 differ:"
  diff "$work/$1" "$work/$2" | head -6
  failures=$((failures + 1))
}

# refused NAME CODE TEXT COMMAND...: exit code CODE, and TEXT (a fixed string) once on stderr.
refused() {
  local name=$1 code=$2 text=$3
  shift 3
  run "$name" "$code" timeout -k 5 20 "$@"
  is "$name: \`$text\` in its $(wc -l <"$work/$name.err") lines" "$(grep -cF -- "$text" "$work/$name.err")" 1
}

# Each action of a schedule exactly once per stage and microbatch, as text: whole NAME STAGES MICROBATCHES KINDS.
whole() {
  local stage mb kind
  for kind in $4; do
    for ((stage = 0; stage < $2; stage++)); do
      for ((mb = 0; mb < $3; mb++)); do
        echo "$stage$kind$mb"
      done
    done
  done | sort >"$work/$1.wanted"
  tr ',' '\n' <"$work/$1.schedule" | grep . | sort >"$work/$1.cells"
  equal "$1.cells" "$1.wanted"
}

done_with() {
  [ "$checks" -gt 0 ] || { echo "nothing was checked"; exit 1; }
  finish
}
