# SPDX-License-Identifier: Apache-2.0
# Completion for bash of muster and of the programs that it stands for: commands, options and words
# that an option takes, all as --help of the program has them.
# shellcheck shell=bash

# The commands that a program lists: "  NAME  what it does".
_muster_commands() { "$@" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\)   *[^ ].*/\1/p'; }

# Its options, one a line: "--model=gpt2|mlp", "--fresh".
_muster_options() {
    "$@" --help 2>/dev/null | grep -oE '(^|[ ,])--[a-z][a-z0-9-]*(=[^ ]+)?' | sed 's/^[ ,]//'
}

_muster() {
    local word=$2 at=1 option options replies=()
    local -a program=("$1")
    # "muster ckpt ls" is "muster-ckpt ls", and both have commands of their own.
    if [ "${1##*/}" = muster ]; then
        if [ "$COMP_CWORD" -eq 1 ]; then
            mapfile -t COMPREPLY < <(compgen -W "$(_muster_commands "$1")" -- "$word")
            return
        fi
        program=("$1" "${COMP_WORDS[1]}")
        at=2
    fi
    if [[ ${program[*]} = *[-\ ]ckpt ]]; then
        if [ "$COMP_CWORD" -eq "$at" ] && [[ $word != -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$(_muster_commands "${program[@]}")" -- "$word")
            return
        fi
        program+=("${COMP_WORDS[at]}")
    fi
    # In "--model=gp" bash takes "=" for a word of its own.
    option=$3
    [ "$word" != = ] || word=
    [ "$option" != = ] || option=${COMP_WORDS[COMP_CWORD - 2]}
    options=$(_muster_options "${program[@]}")
    if [[ $word = -* ]]; then
        mapfile -t replies < <(compgen -W "$(cut -d= -f1 <<<"$options")" -- "$word")
    elif [[ $option = --* ]] && options=$(sed -n "s/^$option=\(.*|.*\)/\1/p" <<<"$options") &&
        [ -n "$options" ]; then
        mapfile -t replies < <(compgen -W "${options//|/ }" -- "$word")
    else
        compopt -o filenames 2>/dev/null
        mapfile -t replies < <(compgen -f -- "$word")
    fi
    COMPREPLY=("${replies[@]}")
}

complete -F _muster muster muster-ckpt muster-curve muster-doctor muster-eval muster-generate \
    muster-notice muster-rdzv muster-report muster-run muster-tokens muster-top muster-train \
    muster-where
