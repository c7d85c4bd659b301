#!/bin/sh
# The tour of the README: compiles two examples and trains them on four ranks each, on real data. For the CPU: few machines
# have four GPUs.
set -eu
build=$1
scripts/data.sh "$build/data"
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
say "pdc examples/gpt-bible.pd: a language model of the King James Bible, pipeline 2 x tensor 2"
"$build/pdc" --target=host -v examples/gpt-bible.pd -o "$build/gpt-bible"
"$build/gpt-bible" --data="$build/data/bible-train.txt" --valid="$build/data/bible-valid.txt" --log="$build/gpt-bible.jsonl" \
  --save="$build/gpt-bible.safetensors" --generate="In the beginning " --tokens=300
say "pdc examples/mlp-fashion.pd: an image classifier, pipeline 2 x data 2"
"$build/pdc" --target=host examples/mlp-fashion.pd -o "$build/mlp-fashion"
"$build/mlp-fashion" --log="$build/mlp-fashion.jsonl"
say "the logs are $build/gpt-bible.jsonl and $build/mlp-fashion.jsonl; the plan: $build/gpt-bible --plan"
