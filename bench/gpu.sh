#!/bin/sh
# The CUDA target on a real GPU: builds pdc, then runs bench/gpu.py, whose --help says what it measures.
# usage: bench/gpu.sh [--mpi] [--peak=TFLOPS] [--seconds=N]
set -eu
# where pdc looks for CUDA, too
cuda=${CUDA_HOME:-}
if [ -n "$cuda" ]; then cuda=$(realpath -m "$cuda")
elif nvcc=$(command -v nvcc); then cuda=$(dirname "$(dirname "$(realpath "$nvcc")")")
else cuda=/usr/local/cuda; fi
export CUDA_HOME="$cuda"
cd "$(dirname "$0")/.."
missing() { echo "bench/gpu.sh: $1" >&2; exit 2; }
command -v python3 >/dev/null || missing "python3 is missing: scripts/setup.sh installs it on Debian and Ubuntu"
for word; do
  case $word in
    --mpi | --peak=* | --seconds=*) ;;
    -h | --help) exec python3 bench/gpu.py --help ;;
    *) missing "unknown option $word; --help lists all" ;;
  esac
done

[ -x "$cuda/bin/nvcc" ] || command -v nvcc >/dev/null ||
  missing "nvcc is neither in $cuda/bin nor on PATH: install the CUDA toolkit 13, or set CUDA_HOME to where it is"
[ -e "$cuda/lib64/libcudart.so.13" ] || [ -e "$cuda/lib/libcudart.so.13" ] || missing "$cuda is no CUDA 13: it has no libcudart.so.13"

absent=
for tool in make gcc g++ mpicc flex bison ar awk; do command -v "$tool" >/dev/null || absent="$absent $tool"; done
[ -z "$absent" ] || missing "make needs$absent: scripts/setup.sh installs them on Debian and Ubuntu"
for library in openblas dnnl jansson md z; do
  echo 'int main(void) { return 0; }' | gcc -x c - -o /dev/null "-l$library" 2>/dev/null || absent="$absent lib$library"
done
[ -z "$absent" ] || missing "make needs the libraries$absent, with headers: scripts/setup.sh installs them on Debian and Ubuntu"
for header in cuda_runtime.h cublasLt.h nccl.h; do
  echo "#include <$header>" | gcc -E -x c - -I "$cuda/include" -I "$cuda/../nccl/include" >/dev/null 2>&1 || absent="$absent $header"
done
[ -z "$absent" ] || missing "make needs the headers$absent: install the CUDA toolkit 13, for nccl.h NVIDIA's package libnccl-dev"

make -s -j"$(nproc)" CUDA="$cuda" BUILD=build all
exec python3 bench/gpu.py build "$@"
