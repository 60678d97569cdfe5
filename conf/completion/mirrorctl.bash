# Completion of mirrorctl for bash: nouns, verbs and options as `mirrorctl --help` lists them, names from the daemon.
_mirrorctl()
{
    local cur=${COMP_WORDS[COMP_CWORD]} words=() w noun verb
    for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ $w == -* ]] || words+=("$w")
    done
    noun=${words[0]} verb=${words[1]}
    if [[ $cur == -* ]]; then
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
        'hf export') w+=' --to --fetch --since --force --deep' ;;
        'hf import') w+=' --into --open --no-pin --digest --deep' ;;
        'token create') w+=' --name --scope --expires' ;;
        'tls init') w+=' --name --csr --force' ;;
        init*) w+=' --force' ;;
        esac
    elif [[ -z $noun ]]; then
        w='status top repo cache verify sync snapshot hf token peers upstream config tls init'
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
        config) w='test reload' ;;
        tls) w='init' ;;
        *) w='' ;;
        esac
    else
        case "$noun $verb" in
        'repo show' | 'cache ls' | 'cache pin' | 'cache rm' | 'cache refresh' | 'snapshot '* | 'sync '* | 'upstream check')
            w=$(mirrorctl repo ls 2>/dev/null </dev/null | cut -f1) ;;
        'hf ls') w=$(mirrorctl repo ls 2>/dev/null </dev/null | awk -F'\t' '$2 ~ /^(hf|hosted)$/ { print $1 }') ;;
        'hf import' | 'tls init') compopt -o default; return ;;
        'hf '*) w=$(mirrorctl hf ls 2>/dev/null </dev/null | awk -F'\t' '{ print $1 "/" $3 }') ;;
        'token revoke') w=$(mirrorctl token ls 2>/dev/null </dev/null | cut -f1) ;;
        *) w='' ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$w" -- "$cur")
}
complete -F _mirrorctl mirrorctl
