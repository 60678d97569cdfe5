#!/bin/sh
# train.sh CORPUS INCLUDE CONFIG OUT [trainer options] - the demo's job, as trainagent starts it: text out of what was
# staged, tokens out of the text (a twentieth of the files held out), a small GPT out of the tokens.
set -eu
corpus=$1 include=$2 config=$3 out=$4
shift 4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A Debian package is an archive of archives; the agent has opened the outer one.
for inner in "$corpus"/data.tar*; do
    [ -e "$inner" ] && mkdir -p "$work/text" && tar -C "$work/text" -xf "$inner"
done
[ -d "$work/text" ] || ln -s "$corpus" "$work/text"

# Of manual pages the prose alone: a small model soon writes words, and markup only costs it time.
find "$work/text" -type f -name '*.pod' -exec sed -i -E '/^[ \t=]/d; s/[A-Z]<+ *([^<>]*[^<> ]) *>+/\1/g' {} +

find -L "$work/text" -type f -name "$include" | sort >"$work/files"
awk 'NR % 20 != 0' "$work/files" | xargs trainer tokenize --out "$work/train.bin"
awk 'NR % 20 == 0' "$work/files" | xargs trainer tokenize --out "$work/val.bin"

trainer train --config "$config" --data "$work/train.bin" --val "$work/val.bin" --out "$out" "$@"
