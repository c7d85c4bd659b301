#!/bin/sh
# The CUDA target on a real GPU: builds what is needed, then bench/gpu.py, whose first lines say what it measures.
# usage: bench/gpu.sh [--mpi]
set -eu
cd "$(dirname "$0")/.."
for tool in nvcc nvidia-smi python3; do
  command -v "$tool" >/dev/null || { echo "bench/gpu.sh needs $tool: a machine with an NVIDIA driver, and the CUDA toolkit on PATH" >&2; exit 2; }
done
make -s all
exec python3 bench/gpu.py "$@"
