# Completion of mirrord for fish: options as `mirrord --help` lists them, else files.
function __mirrord_options
    mirrord --help 2>/dev/null | awk -F'  +' '/^ +-/ { n = split($2, w, /[ ,]+/); for (i = 1; i <= n; i++) if (w[i] ~ /^--[a-z]/) print w[i] "\t" $3 }'
end
complete -c mirrord -n 'string match -q -- "-*" (commandline -ct)' -a '(__mirrord_options)'
