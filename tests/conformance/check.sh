# Sourced by the scripts here. BIN is the folder of the executables.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# run NAME WANTED_CODE COMMAND...: output goes to $work/NAME.out and .err. WANTED_CODE may be `fails`: any but 0, 124, 137.
run() {
  local name=$1 wanted=$2 code=0
  shift 2
  "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null || code=$?
  if [ "$wanted" = fails ] && [ "$code" != 0 ] && [ "$code" != 124 ] && [ "$code" != 137 ]; then
    return
  fi
  if [ "$code" != "$wanted" ]; then
    echo "$name: exit code $code, wanted $wanted: $*"
    sed 's/^/  /' "$work/$name.out" "$work/$name.err"
    failures=$((failures + 1))
  fi
}

# lines NAME COUNT PATTERN: that many lines of its stderr match the extended regular expression.
lines() {
  local count
  count=$(grep -cE -- "$3" "$work/$1.err")
  if [ "$count" != "$2" ]; then
    echo "$1: $count lines match \`$3\`, wanted $2:"
    sed 's/^/  /' "$work/$1.err"
    failures=$((failures + 1))
  fi
}

# same NAME NAME: equal standard output.
same() {
  if ! cmp -s "$work/$1.out" "$work/$2.out"; then
    echo "$1 and $2 differ:"
    diff "$work/$1.out" "$work/$2.out" | head -20
    failures=$((failures + 1))
  fi
}

finish() {
  [ "$failures" = 0 ] && echo "all as wanted"
  exit "$((failures != 0))"
}
