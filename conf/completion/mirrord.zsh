#compdef mirrord
# Completion of mirrord for zsh: options as `mirrord --help` lists them, else files.
local -a options
if [[ $words[CURRENT] == -* ]]; then
    options=(${(f)"$(mirrord --help 2>/dev/null | awk -F'  +' '/^ +-/ { n = split($2, w, /[ ,]+/); for (i = 1; i <= n; i++) if (w[i] ~ /^--[a-z]/) print w[i] ":" $3 }')"})
    _describe -o option options
else
    _files
fi
