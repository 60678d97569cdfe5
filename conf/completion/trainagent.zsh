#compdef trainagent
# Completion of trainagent for zsh: verbs and options as `trainagent --help` and the verb's own help list them, else files.
local -a options verbs
local help word
help=$(trainagent --help 2>/dev/null)
verbs=(${(f)"$(awk -F'  +' '/^  [a-z]/ { split($2, w, " "); print w[1] ":" $3 }' <<<$help)"})
if [[ $words[CURRENT] == -* ]]; then
    for word in $words[2,CURRENT-1]; do
        if (( $verbs[(I)$word:*] )); then
            help+=$'\n'$(trainagent help $word 2>/dev/null)
            break
        fi
    done
    options=(${(f)"$(awk -F'  +' '/^ +-/ { n = split($2, w, /[ ,]+/); for (i = 1; i <= n; i++) if (w[i] ~ /^--[a-z]/) print w[i] ":" $3 }' <<<$help)"})
    _describe -o option options
elif (( CURRENT == 2 )); then
    _describe verb verbs
else
    _files
fi
