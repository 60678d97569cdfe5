# Completion of trainer for bash: verbs, and each verb's options, as --help lists them, else files.
_trainer()
{
    local cur=${COMP_WORDS[COMP_CWORD]} w
    if [[ $COMP_CWORD -eq 1 ]]; then
        w=$(trainer --help 2>/dev/null | sed -nE 's/^  ([a-z]+) .*/\1/p')
    elif [[ $cur == -* ]]; then
        w=$(trainer "${COMP_WORDS[1]}" --help 2>/dev/null | grep -oE '^  --[a-z][a-z0-9-]+')
    else
        return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$w" -- "$cur")
}
complete -o default -F _trainer trainer
