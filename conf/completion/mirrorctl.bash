# Completion of mirrorctl for bash: nouns, verbs and options as `mirrorctl --help` lists them, names from the daemon.

# What the daemon that the line means lists: names alone, since compgen expands what it is given as the shell does.
_mirrorctl_names()
{
    mirrorctl "${socket[@]}" $1 2>/dev/null </dev/null | awk -F'\t' "$2" | grep -E '^[A-Za-z0-9._/@-]+$'
}

_mirrorctl()
{
    local cur=${COMP_WORDS[COMP_CWORD]} words=() socket=() value='' w noun verb
    for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [[ -n $value ]]; then
            socket+=("$value" "$w")
            value=
        elif [[ $w == --socket || $w == --config || $w == -c ]]; then
            value=$w
        elif [[ $w != -* ]]; then
            words+=("$w")
        fi
    done
    noun=${words[0]} verb=${words[1]}
    if [[ -n $value ]]; then
        compopt -o default 2>/dev/null
        return
    elif [[ $cur == -* ]]; then
        w='--socket --json --plain --quiet --no-color --help --version'
        case "$noun $verb" in
        top*) w+=' --once --interval' ;;
        'cache ls') w+=' --limit' ;;
        'cache rm') w+=' --all --dry-run' ;;
        'cache gc') w+=' --dry-run' ;;
        'sync run') w+=' --wait --dry-run --force' ;;
        'sync logs') w+=' --run' ;;
        'snapshot hold') w+=' --off' ;;
        'hf prefetch') w+=' --include --exclude --pin --wait --token-file --stop' ;;
        'hf pin') w+=' --token-file' ;;
        'hf rollback') w+=' --release' ;;
        verify*) w+=' --deep --repair' ;;
        'cluster drain') w+=' --notice --timeout --off' ;;
        'cluster void') w+=' --digest' ;;
        'cluster leave') w+=' --local --force' ;;
        'cluster gc') w+=' --dry-run' ;;
        'cluster verify') w+=' --deep' ;;
        'hf export') w+=' --to --fetch --since --force --deep' ;;
        'hf import') w+=' --into --open --no-pin --digest --deep' ;;
        'token create') w+=' --name --scope --expires' ;;
        'tls init') w+=' --name --csr --force' ;;
        init*) w+=' --force' ;;
        esac
    elif [[ -z $noun ]]; then
        w='status top repo cache verify sync snapshot hf token peers upstream cluster config tls init'
    elif [[ -z $verb ]]; then
        case $noun in
        repo) w='ls show' ;;
        cache) w='ls stats pin unpin pins rm refresh gc' ;;
        sync) w='ls run show logs pause resume stop approve' ;;
        snapshot) w='ls show diff rollback tag hold rm' ;;
        hf) w='ls show prefetch pin unpin rollback export import' ;;
        token) w='create ls revoke' ;;
        peers) w='ls' ;;
        upstream) w='check' ;;
        cluster) w='status nodes drain void adopt leave check gc verify' ;;
        config) w='test reload' ;;
        tls) w='init' ;;
        *) w='' ;;
        esac
    else
        case "$noun $verb" in
        'repo show' | 'cache ls' | 'cache pin' | 'cache rm' | 'cache refresh' | 'snapshot '* | 'sync '* | 'upstream check')
            w=$(_mirrorctl_names 'repo ls' '{ print $1 }') ;;
        'hf ls') w=$(_mirrorctl_names 'repo ls' '$2 ~ /^(hf|hosted)$/ { print $1 }') ;;
        'hf import' | 'tls init') compopt -o default; return ;;
        'hf '*) w=$(_mirrorctl_names 'hf ls' '{ print $1 "/" $3 }') ;;
        'token revoke') w=$(_mirrorctl_names 'token ls' '{ print $1 }') ;;
        *) w='' ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$w" -- "$cur")
}
complete -F _mirrorctl mirrorctl
