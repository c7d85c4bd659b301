#!/bin/sh
# Installs the Debian packages that building, testing and the demo need, when they are missing. Root, or sudo.
set -eu
packages="gcc g++ make flex bison openmpi-bin libopenmpi-dev libopenblas-openmp-dev libdnnl-dev libjansson-dev zlib1g-dev
  libmd-dev libcriterion-dev python3 clang locales bible-kjv bible-kjv-text dataset-fashion-mnist"
missing=
for package in $packages; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
echo "installing:$missing"
run=
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "these packages are missing and need root to install:$missing" >&2; exit 1; }
  run=sudo
fi
$run apt-get update -qq
# shellcheck disable=SC2086
$run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
