#!/usr/bin/env bash
# The engine alone, with a model written by hand, over layouts, precisions and ways of sending messages.
# usage: engine_test.sh BUILD; prints `N passed, N failed`.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
lib=$build/lib/pdc
out=$build/tests/engine
mkdir -p "$out"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl=self,vader
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMP_NUM_THREADS=1
passed=0 failed=0

compile() { # name flag…
  local name=$1
  shift
  # what is compiled in another way here comes before the library's
  local own=()
  [ $# -lt 2 ] || own=("$root"/runtime/{layout,walk,world}.c "$root"/runtime/engine*.c "$root"/runtime/host/*.c)
  mpicc -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra "$@" -I"$root/runtime" -o "$out/$name" \
    "$root"/tests/run/engine_{program,model,schedules}.c "${own[@]}" "$lib/libpdrt.a" $(cat "$lib/libs") || failed=$((failed + 1))
}

run() { # program pp dp tp batch microbatch
  local log line ranks=$(($2 * $3 * $4))
  log=$(timeout 300 mpirun -n $ranks "$out/$1" "${@:2}" 2>&1)
  local status=$?
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' <<<"$log" | tail -n 1)
  if [ $status = 0 ] && [ -n "$line" ]; then
    passed=$((passed + ${line%% *}))
  else
    failed=$((failed + 1))
    echo "FAILED: $* (status $status)"
    head -n 20 <<<"$log"
  fi
}

# one line for people, one exit code, whoever fails
fails() { # who ranks
  local log errors
  log=$(timeout 60 mpirun -n $2 "$out/f32" $2 1 1 4 1 "$1" 2>&1)
  local status=$?
  errors=$(grep -c '^error: ' <<<"$log")
  if [ $status = 5 ] && [ "$errors" = 1 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: rank $1 of $2 must fail: status $status, $errors messages"
    head -n 20 <<<"$log"
  fi
}

compile f32
compile f64 -DPD_TEST_DOUBLE
compile small -DPD_BUCKET_BYTES=256 -DPD_MESSAGE_LIMIT=100 # tiny ones take the paths of huge ones
compile checked -fsanitize=address,undefined -fno-sanitize-recover

fails 0 1
fails all 4
fails 2 3
fails differ 2
run f32 1 1 1 4 1
run f32 2 1 1 8 1
run f32 4 1 1 6 1
run f32 3 1 1 1 1
run f32 2 2 1 8 2
run f32 1 3 2 6 1
run f32 1 2 1 6 1
run small 1 2 1 6 1
run f32 1 1 4 4 2
run f64 1 1 1 6 2
run f64 2 2 2 8 1
run f64 3 1 2 12 2
run f64 2 3 1 6 1
run small 2 2 2 8 2
run small 2 3 1 12 1
ASAN_OPTIONS=detect_leaks=0 run checked 1 1 1 6 2
ASAN_OPTIONS=detect_leaks=0 run checked 2 2 1 8 1
# every message waits for its receiver, and ranks fall behind each other
export PD_TEST_JITTER=1 OMPI_MCA_btl_vader_eager_limit=80 OMPI_MCA_btl_self_eager_limit=80
run f64 4 1 1 16 2
run f32 2 2 2 32 4
run f32 4 1 2 16 4
run small 3 2 1 48 4
echo "$passed passed, $failed failed"
[ $failed = 0 ]
