# Completion of trainer for fish: verbs, and each verb's options, as --help lists them, else files.
function __trainer_options
    trainer (commandline -opc)[2] --help 2>/dev/null | awk -F'  +' '/^ +-/ { n = split($2, w, /[ ,]+/); for (i = 1; i <= n; i++) if (w[i] ~ /^--[a-z]/) print w[i] "\t" $3 }'
end
function __trainer_verbs
    trainer --help 2>/dev/null | awk -F'  +' '/^  [a-z]/ { split($2, w, " "); print w[1] "\t" $3 }'
end
complete -c trainer -n 'test (count (commandline -opc)) -gt 1; and string match -q -- "-*" (commandline -ct)' -a '(__trainer_options)'
complete -c trainer -f -n 'test (count (commandline -opc)) -eq 1' -a '(__trainer_verbs)'
