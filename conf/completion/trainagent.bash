# Completion of trainagent for bash: verbs and options as `trainagent --help` lists them, else files.
_trainagent()
{
    local cur=${COMP_WORDS[COMP_CWORD]} help w
    help=$(trainagent --help 2>/dev/null)
    if [[ $cur == -* ]]; then
        w=$(grep -oE -- '--[a-z][a-z0-9-]+' <<<"$help" | sort -u)
    elif [[ $COMP_CWORD -eq 1 ]]; then
        w=$(sed -nE 's/^  ([a-z]+) .*/\1/p' <<<"$help")
    else
        return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$w" -- "$cur")
}
complete -o default -F _trainagent trainagent
