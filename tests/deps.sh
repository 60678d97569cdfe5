#!/bin/sh
# deps.sh GROUP... - installs the Debian packages of these groups of packages.txt. With `test` it also installs the Python clients of
# requirements.txt into .venv, with `heavy` those of requirements-heavy.txt into .venv-heavy. It is quick when nothing is missing.
#
# Without root or sudo it prints the line to run and exits 69. The groups `clients` and `heavy` and all Python packages are optional:
# deps.sh reports what cannot be installed and exits 0, and the tests that need it are skipped.
set -eu
cd "$(dirname "$0")"

# missing GROUP - its packages that are not installed. A package whose program comes from elsewhere counts as installed.
missing() {
    awk -v group="[$1]" '/^\[/ { on = $0 == group; next } on && NF && !/^#/' packages.txt | while read -r package program; do
        case $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) in
        installed) continue ;;
        esac
        if [ -z "$program" ] || ! command -v "$program" >/dev/null; then
            printf ' %s' "$package"
        fi
    done
}

# apt_install OPTION... PACKAGE...
apt_install() {
    $as_root env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes \
        apt-get install -qq -y -o Dpkg::Use-Pty=0 --no-install-recommends "$@" >/dev/null
}

# can_be_installed "PACKAGE..." - all of them, and nothing has to go
can_be_installed() {
    # shellcheck disable=SC2086
    apt-get install -s -qq --no-remove --no-install-recommends $1 >/dev/null 2>&1
}

enabled_units() {
    systemctl list-unit-files --state=enabled --no-legend 2>/dev/null | awk '{ print $1 }'
}

required='' optional=''
for group in "$@"; do
    case $group in
    clients | heavy) optional="$optional$(missing "$group")" ;;
    *) required="$required$(missing "$group")" ;;
    esac
done

as_root=
if [ -n "$required$optional" ] && [ "$(id -u)" -ne 0 ]; then
    as_root="sudo -n"
    if ! $as_root true 2>/dev/null; then
        echo "deps: packages are missing and this needs root. Run:" >&2
        echo "  apt-get update && apt-get install --no-install-recommends -y$required$optional" >&2
        [ -z "$required" ] || exit 69
        echo "deps: tests that need them will be skipped" >&2
        optional=
    fi
fi

if [ -n "$required$optional" ]; then
    # policy-rc.d: the tests start the servers that they need; none is to start as a service.
    policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d}
    if [ ! -e "$policy" ]; then
        # Left behind it would keep every service of the machine from starting, and dash forgets EXIT when a signal ends it.
        trap '$as_root rm -f "$policy"' EXIT
        trap 'exit 1' HUP INT TERM
        printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
        $as_root chmod 755 "$policy"
    fi
    units_before=
    ! command -v systemctl >/dev/null || units_before=$(enabled_units)
fi

if [ -n "$required" ]; then
    echo "deps: installing$required"
    $as_root apt-get update -qq
    # shellcheck disable=SC2086
    apt_install $required
fi

if [ -n "$optional" ]; then
    echo "deps: installing$optional"
    [ -n "$required" ] || $as_root apt-get update -qq -o Acquire::Retries=0 || true
    # One package that is unknown here, or conflicts with an installed one, must not keep the others away. Each question takes seconds.
    possible='' impossible=''
    if can_be_installed "$optional"; then
        possible=$optional
    else
        for package in $optional; do
            if can_be_installed "$possible $package"; then
                possible="$possible $package"
            else
                impossible="$impossible $package"
            fi
        done
    fi
    # shellcheck disable=SC2086
    if [ -n "$possible" ] && ! apt_install --no-remove $possible; then
        impossible="$impossible$possible"
    fi
    [ -z "$impossible" ] || echo "deps: could not be installed; their tests will be skipped:$impossible" >&2
fi

# The services of these packages are not to start with the machine either. A systemctl that came with them knows no units from before.
if [ -n "${units_before:-}" ]; then
    new=$(enabled_units | while read -r unit; do
        case " $(echo "$units_before" | tr '\n' ' ')" in
        *" $unit "*) ;;
        *) printf ' %s' "$unit" ;;
        esac
    done)
    # shellcheck disable=SC2086
    [ -z "$new" ] || $as_root systemctl -q disable $new || true
fi

# venv FOLDER REQUIREMENTS
venv() {
    if ! cmp -s "$2" "../$1/requirements.txt"; then
        echo "deps: Python packages of $2 into $1"
        if /usr/bin/python3 -m venv "../$1" && "../$1/bin/python" -m pip install -q -U -r "$2"; then
            cp "$2" "../$1/requirements.txt"
        else
            echo "deps: the Python packages of $2 could not be installed; their tests will be skipped" >&2
        fi
    fi
}

case " $* " in
*" test "*) venv .venv requirements.txt ;;
esac
case " $* " in
*" heavy "*) venv .venv-heavy requirements-heavy.txt ;;
esac
