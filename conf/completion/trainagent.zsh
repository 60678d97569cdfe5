#compdef trainagent
# Completion of trainagent for zsh: verbs and options as `trainagent --help` lists them, else files.
local -a options verbs
if [[ $words[CURRENT] == -* ]]; then
    options=(${(f)"$(trainagent --help 2>/dev/null | awk -F'  +' '/^ +-/ { n = split($2, w, /[ ,]+/); for (i = 1; i <= n; i++) if (w[i] ~ /^--[a-z]/) print w[i] ":" $3 }')"})
    _describe -o option options
elif (( CURRENT == 2 )); then
    verbs=(${(f)"$(trainagent --help 2>/dev/null | awk -F'  +' '/^  [a-z]/ { split($2, w, " "); print w[1] ":" $3 }')"})
    _describe verb verbs
else
    _files
fi
