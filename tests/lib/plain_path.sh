# SPDX-License-Identifier: Apache-2.0
# Autoconf and make take no blanks, and no quotes, in the path of a source tree. To be sourced.
# shellcheck shell=bash

# plain_path FOLDER: the folder, or a link to it without such characters, below /var/tmp.
plain_path() {
    local link
    [[ $1 = *[!A-Za-z0-9._/+-]* ]] || { printf '%s' "$1" && return; }
    link=/var/tmp/muster-source-$(id -u)-$(cksum <<<"$1" | cut -d' ' -f1)
    ln -sfn "$1" "$link" && printf '%s' "$link"
}
