#!/usr/bin/env bash
# Runs every suite of tests/ and adds up what they report. Each suite ends with `N passed, N failed` (or Criterion's
# synthesis line). usage: test.sh BUILD [suite name part…]
# CUDA is where the CUDA toolkit is; if it is empty, the suites of the CUDA target are left out, and that is said.
set -u
build=$1
shift
passed=0 failed=0
mkdir -p "$build/tests/log"

suite() { # name command…
  local name=$1 log="$build/tests/log/${1//\//-}.log" wanted=1 start=$SECONDS
  shift
  if [ ${#only[@]} -gt 0 ]; then
    wanted=0
    for part in "${only[@]}"; do case $name in *"$part"*) wanted=1 ;; esac; done
  fi
  [ $wanted = 1 ] || return 0
  "$@" >"$log" 2>&1 </dev/null
  local status=$? p f line
  line=$(grep -E 'Tested: [0-9]+ \| Passing' "$log" | tail -n 1 | sed 's/\x1b\[[0-9;]*m//g')
  if [ -n "$line" ]; then
    p=$(sed -E 's/.*Passing: ([0-9]+).*/\1/' <<<"$line")
    f=$(sed -E 's/.*Tested: ([0-9]+).*/\1/' <<<"$line")
    f=$((f - p))
  else
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    p=$(sed -E 's/^([0-9]+) passed.*/\1/' <<<"${line:-0 passed}")
    f=$(sed -E 's/.*, ([0-9]+) failed.*/\1/' <<<"${line:-, 1 failed}")
  fi
  if [ $status != 0 ] && [ "$f" = 0 ]; then f=1; fi # a suite that died without counting
  passed=$((passed + p)) failed=$((failed + f))
  printf '%-24s %4d passed %4d failed  %4d s\n' "$name" "$p" "$f" $((SECONDS - start))
  if [ "$f" != 0 ]; then
    sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -vE '^\[(PASS|RUN )' | tail -n 60
  fi
}

only=("$@")
left_out=
export PDC="$build/pdc"
for test in "$build"/tests/unit/*_test; do [ -x "$test" ] && suite "unit/$(basename "$test")" "$test"; done
export CUDA=${CUDA-/usr/local/cuda}
for test in tests/run/*_test.py; do
  case $test:$CUDA in *cuda*_test.py:|*fake*_test.py:) left_out="$left_out $(basename "$test" .py)" && continue ;; esac
  [ -f "$test" ] && suite "run/$(basename "$test" .py)" python3 "$test"
done
for test in tests/run/*_test.sh; do [ -f "$test" ] && suite "run/$(basename "$test" .sh)" bash "$test" "$build"; done
[ -z "$left_out" ] || echo "left out, as there is no CUDA toolkit (say where with make CUDA=…):$left_out"
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
