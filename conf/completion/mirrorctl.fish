# Completion of mirrorctl for fish: nouns, verbs and options as `mirrorctl --help` lists them, names from the daemon.
function __mirrorctl_given -d 'the noun, the verb and their arguments before the cursor'
    set -l value
    for word in (commandline -opc)[2..-1]
        if test -n "$value"
            set value
        else if contains -- $word --socket --config -c
            set value 1
        else if not string match -q -- '-*' $word
            echo $word
        end
    end
end
function __mirrorctl_socket -d 'which daemon the line is about'
    set -l tokens (commandline -opc)
    for i in (seq 2 (count $tokens))
        contains -- $tokens[$i] --socket --config -c; and test $i -lt (count $tokens); and printf '%s\n' $tokens[$i (math $i + 1)]
    end
end
function __mirrorctl_words
    set -l given (__mirrorctl_given)
    set -l socket (__mirrorctl_socket)
    if string match -q -- '-*' (commandline -ct)
        begin
            mirrorctl --help
            mirrorctl $given[1..2] --help; or mirrorctl $given[1] --help
        end 2>/dev/null | awk -F'  +' '/^ +-/ { n = split($2, w, /[ ,]+/); for (i = 1; i <= n; i++) if (w[i] ~ /^--[a-z]/) print w[i] "\t" $3 }'
        printf '%s\n' --help --version
        return
    end
    if test (count $given) -eq 0
        mirrorctl --help 2>/dev/null | awk -F'  +' '/^  [a-z]/ { n = split($2, w, " "); verb = n > 1 && w[2] ~ /^[a-z]+$/; if (!(w[1] in seen)) print w[1] "\t" (verb ? "..." : $3); seen[w[1]] = 1 }'
        return
    end
    if test (count $given) -eq 1
        set -l verbs (mirrorctl $given[1] --help 2>/dev/null | awk -F'  +' '/^  [a-z]/ { n = split($2, w, " "); if (n > 1 && w[2] ~ /^[a-z]+$/) print w[2] "\t" $3 }')
        if test -n "$verbs"
            printf '%s\n' $verbs
            return
        end
    end
    switch "$given[1] $given[2]"
        case 'repo show' 'cache ls' 'cache pin' 'cache rm' 'cache refresh' 'snapshot *' 'sync *' 'upstream check'
            mirrorctl $socket repo ls 2>/dev/null | cut -f1
        case 'hf ls'
            mirrorctl $socket repo ls 2>/dev/null | awk -F'\t' '$2 ~ /^(hf|hosted)$/ { print $1 }'
        case 'hf import' 'init *'
            __fish_complete_path (commandline -ct)
        case 'hf *'
            mirrorctl $socket hf ls 2>/dev/null | awk -F'\t' '{ print $1 "/" $3 }'
        case 'token revoke'
            mirrorctl $socket token ls 2>/dev/null | cut -f1
    end
end
complete -c mirrorctl -f -n 'not contains -- (commandline -opc)[-1] --socket --config -c' -a '(__mirrorctl_words)'
complete -c mirrorctl -n 'contains -- (commandline -opc)[-1] --socket --config -c' -F
