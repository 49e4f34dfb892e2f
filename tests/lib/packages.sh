# SPDX-License-Identifier: Apache-2.0
# Installs what tests/packages.txt names, on Debian and its kin. To be sourced.
# shellcheck shell=bash

# packages_missing GROUP…: the packages of these groups that are not installed.
packages_missing() {
    local list group package
    list=$(dirname "${BASH_SOURCE[0]}")/../packages.txt
    while read -r group package; do
        [[ " $* " = *" $group "* ]] || continue
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            printf '%s\n' "$package"
    done < <(grep -v '^#' "$list")
}

# packages_install GROUP…: installs those that are missing; asks apt for nothing when none is.
packages_install() {
    local -a missing
    command -v dpkg-query >/dev/null || {
        echo "packages: not a Debian; taking what is installed"; return 0
    }
    mapfile -t missing < <(packages_missing "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        echo "packages: couldn't install ${missing[*]}: needs root (apt-get install ${missing[*]})" >&2
        return 1
    fi
    echo "packages: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    {
        timeout 120 apt-get update -q &&
            timeout 420 apt-get install -qy --no-install-recommends "${missing[@]}"
    } \
        </dev/null >/var/tmp/muster-packages.$$ 2>&1 || {
        tail -n 15 /var/tmp/muster-packages.$$ >&2
        echo "packages: couldn't install ${missing[*]}: the lines above are apt's" >&2
        rm -f /var/tmp/muster-packages.$$
        return 1
    }
    rm -f /var/tmp/muster-packages.$$
}
