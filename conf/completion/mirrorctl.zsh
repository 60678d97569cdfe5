#compdef mirrorctl
# Completion of mirrorctl for zsh: nouns, verbs and options as `mirrorctl --help` lists them, names from the daemon.
local -a given socket found
local word value
for word in ${words[2,CURRENT-1]}; do
    if [[ -n $value ]]; then
        [[ $value == --socket || $value == -c || $value == --config ]] && socket+=($value ${(Q)word})
        value=
    elif [[ $word == (--socket|--config|-c) ]]; then
        value=$word
    elif [[ $word != -* ]]; then
        given+=($word)
    fi
done
if [[ -n $value ]]; then
    _files
elif [[ $words[CURRENT] == -* ]]; then
    found=(${(f)"$({ mirrorctl --help; (( $#given )) && mirrorctl ${given[1,2]} --help || mirrorctl $given[1] --help; } 2>/dev/null |
        awk -F'  +' '/^ +-/ { n = split($2, w, /[ ,]+/); for (i = 1; i <= n; i++) if (w[i] ~ /^--[a-z]/) print w[i] ":" $3 }')"} --help --version)
    _describe -o option found
elif (( $#given == 0 )); then
    found=(${(f)"$(mirrorctl --help 2>/dev/null | awk -F'  +' '/^  [a-z]/ { n = split($2, w, " "); verb = n > 1 && w[2] ~ /^[a-z]+$/; if (!(w[1] in seen)) print w[1] ":" (verb ? "..." : $3); seen[w[1]] = 1 }')"})
    _describe noun found
elif (( $#given == 1 )) && found=(${(f)"$(mirrorctl $given[1] --help 2>/dev/null | awk -F'  +' '/^  [a-z]/ { n = split($2, w, " "); if (n > 1 && w[2] ~ /^[a-z]+$/) print w[2] ":" $3 }')"}) && (( $#found )); then
    _describe verb found
else
    case "$given[1] $given[2]" in
    'repo show' | 'cache ls' | 'cache pin' | 'cache rm' | 'cache refresh' | 'snapshot '* | 'sync '* | 'upstream check')
        found=(${(f)"$(mirrorctl $socket repo ls 2>/dev/null | cut -f1)"}) ;;
    'hf ls') found=(${(f)"$(mirrorctl $socket repo ls 2>/dev/null | awk -F'\t' '$2 ~ /^(hf|hosted)$/ { print $1 }')"}) ;;
    'hf import') _files; return ;;
    'hf '*) found=(${(f)"$(mirrorctl $socket hf ls 2>/dev/null | awk -F'\t' '{ print $1 "/" $3 }')"}) ;;
    'token revoke') found=(${(f)"$(mirrorctl $socket token ls 2>/dev/null | cut -f1)"}) ;;
    'init '*) _files; return ;;
    esac
    compadd -a found
fi
