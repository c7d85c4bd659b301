#!/bin/sh
# The King James Bible as plain text, a verse a line, from Debian's bible-kjv: every 20th chapter's run of verses is kept
# for validation. usage: data.sh DIRECTORY
set -eu
directory=$1
[ -s "$directory/bible-train.txt" ] && [ -s "$directory/bible-valid.txt" ] && exit 0
mkdir -p "$directory"
bible -f gen1:1-rev22:21 </dev/null >"$directory/bible.tmp"
awk -v train="$directory/bible-train.tmp" -v valid="$directory/bible-valid.tmp" '
  { split($1, at, ":"); if (at[1] != chapter) { chapter = at[1]; n++ }
    sub(/^[^ ]* /, ""); print > (n % 20 == 0 ? valid : train) }' "$directory/bible.tmp"
mv "$directory/bible-valid.tmp" "$directory/bible-valid.txt"
mv "$directory/bible-train.tmp" "$directory/bible-train.txt"
rm "$directory/bible.tmp"
