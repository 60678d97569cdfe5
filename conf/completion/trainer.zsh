#compdef trainer
# Completion of trainer for zsh: verbs, and each verb's options, as --help lists them, else files.
local -a options verbs
if (( CURRENT == 2 )); then
    verbs=(${(f)"$(trainer --help 2>/dev/null | awk -F'  +' '/^  [a-z]/ { split($2, w, " "); print w[1] ":" $3 }')"})
    _describe verb verbs
elif [[ $words[CURRENT] == -* ]]; then
    options=(${(f)"$(trainer $words[2] --help 2>/dev/null | awk -F'  +' '/^ +-/ { n = split($2, w, /[ ,]+/); for (i = 1; i <= n; i++) if (w[i] ~ /^--[a-z]/) print w[i] ":" $3 }')"})
    _describe -o option options
else
    _files
fi
