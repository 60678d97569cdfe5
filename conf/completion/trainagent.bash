# Completion of trainagent for bash: verbs and options as `trainagent --help` and the verb's own help list them, else files.
_trainagent()
{
    local cur=${COMP_WORDS[COMP_CWORD]} help verbs w
    help=$(trainagent --help 2>/dev/null)
    verbs=$(sed -nE 's/^  ([a-z]+) .*/\1/p' <<<"$help")
    if [[ $cur == -* ]]; then
        for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
            if grep -qxF -e "$w" <<<"$verbs"; then
                help+=$'\n'$(trainagent help "$w" 2>/dev/null)
                break
            fi
        done
        w=$(sed -nE 's/^  (-., )?(--[a-z0-9-]+).*/\2/p' <<<"$help")
    elif [[ $COMP_CWORD -eq 1 ]]; then
        w=$verbs
    else
        return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$w" -- "$cur")
}
complete -o default -F _trainagent trainagent
