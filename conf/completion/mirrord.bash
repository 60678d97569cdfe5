# Completion of mirrord for bash: options as `mirrord --help` lists them, else files.
_mirrord()
{
    local cur=${COMP_WORDS[COMP_CWORD]} w
    [[ $cur == -* ]] || return
    w=$(mirrord --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]+' | sort -u)
    mapfile -t COMPREPLY < <(compgen -W "$w" -- "$cur")
}
complete -o default -F _mirrord mirrord
