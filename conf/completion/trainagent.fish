# Completion of trainagent for fish: verbs and options as `trainagent --help` and the verb's own help list them, else files.
function __trainagent_verbs
    trainagent --help 2>/dev/null | awk -F'  +' '/^  [a-z]/ { split($2, w, " "); print w[1] "\t" $3 }'
end
function __trainagent_options
    begin
        trainagent --help 2>/dev/null
        for word in (commandline -opc)[2..-1]
            if __trainagent_verbs | string match -q -- "$word	*"
                trainagent help $word 2>/dev/null
                break
            end
        end
    end | awk -F'  +' '/^ +-/ { n = split($2, w, /[ ,]+/); for (i = 1; i <= n; i++) if (w[i] ~ /^--[a-z]/) print w[i] "\t" $3 }'
end
complete -c trainagent -n 'string match -q -- "-*" (commandline -ct)' -a '(__trainagent_options)'
complete -c trainagent -f -n 'test (count (commandline -opc)) -eq 1' -a '(__trainagent_verbs)'
