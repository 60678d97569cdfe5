#!/bin/sh
# deps.sh GROUP... - installs the Debian packages of these groups of packages.txt; with `test` also the Python clients of
# requirements.txt. Quick when nothing is missing. Without root or sudo it prints the line to run and exits 69.
set -eu
cd "$(dirname "$0")"

missing=
for group in "$@"; do
    for package in $(awk -v group="[$group]" '/^\[/ { on = $0 == group; next } on && !/^#/' packages.txt); do
        case $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) in
        installed) ;;
        *) missing="$missing $package" ;;
        esac
    done
done

if [ -n "$missing" ]; then
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        as_root="sudo -n"
        if ! $as_root true 2>/dev/null; then
            echo "deps: packages are missing and this needs root. Run:" >&2
            echo "  apt-get update && apt-get install --no-install-recommends -y$missing" >&2
            exit 69
        fi
    fi
    echo "deps: installing$missing"
    # policy-rc.d: nginx and h2o are peers for the bench, not services to start.
    policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d}
    if [ ! -e "$policy" ]; then
        # Left behind it would keep every service of the machine from starting, and dash forgets EXIT when a signal ends it.
        trap '$as_root rm -f "$policy"' EXIT
        trap 'exit 1' HUP INT TERM
        printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
        $as_root chmod 755 "$policy"
    fi
    $as_root apt-get update -qq
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes \
        apt-get install -qq -y -o Dpkg::Use-Pty=0 --no-install-recommends $missing >/dev/null
    for service in nginx h2o; do
        case " $missing " in
        *" $service "*) ! command -v systemctl >/dev/null || $as_root systemctl -q disable $service ;;
        esac
    done
fi

# The clients are for tests alone: without a reachable package index those tests are skipped, and say so.
venv=../.venv
stamp=$venv/requirements.txt
case " $* " in
*" test "*)
    if ! cmp -s requirements.txt $stamp; then
        echo "deps: Python clients into .venv"
        if /usr/bin/python3 -m venv $venv && $venv/bin/python -m pip install -q -U -r requirements.txt; then
            cp requirements.txt $stamp
        else
            echo "deps: the Python clients could not be installed; their tests will be skipped" >&2
        fi
    fi
    ;;
esac
