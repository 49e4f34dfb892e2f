#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster, and completion for bash, as they are installed.

load lib/places
bats_require_minimum_version 1.5.0

setup() {
    [ -n "${MUSTER_PREFIX-}" ] || skip "needs the folder that Muster is installed in"
    PATH=$MUSTER_PREFIX/bin:$PATH
    # shellcheck disable=SC1091
    . "$MUSTER_PREFIX/share/bash-completion/completions/muster"
}

@test "alone it lists the commands that are installed, and each has a manual" {
    run -0 muster
    echo "$output"
    [ "$output" = "$(muster --help)" ]
    mapfile -t listed < <(_muster_commands muster)
    [ ${#listed[@]} -ge 6 ]
    for name in "${listed[@]}"; do
        [ -x "$MUSTER_PREFIX/bin/muster-$name" ]
        [ -e "$MUSTER_PREFIX/share/man/man1/muster-$name.1" ]
    done
    # What it does not list is a service or a helper.
    [ "$(cd "$MUSTER_PREFIX/bin" && ls -d muster-* | wc -l)" -le $((${#listed[@]} + 1)) ]
    [ "$(muster --version)" = "$(muster-ckpt --version)" ]
}

@test "every program tells its version and its options" {
    local program version
    version=$(muster --version)
    for program in "$MUSTER_PREFIX"/bin/* "$MUSTER_PREFIX/libexec/muster-requeue"; do
        echo "$program"
        run -0 "$program" --help
        [ -n "$output" ]
        # The one that asks by scontrol is a script, and the same in all versions.
        [[ $program = *-requeue && $(head -c 2 "$program") = "#!" ]] || {
            run -0 "$program" --version
            [ "$output" = "$version" ]
        }
    done
}

@test "a command is its program: arguments, output and status" {
    [ "$(muster ckpt ls --help)" = "$(muster-ckpt ls --help)" ]
    run -65 muster curve "/no such/folder"
    echo "$output"
    [[ $output = *"/no such/folder"* ]]
    # Also by a link, from anywhere.
    ln -s "$MUSTER_PREFIX/bin/muster" "$BATS_TEST_TMPDIR/m"
    cd / && run -0 "$BATS_TEST_TMPDIR/m" where --version
    run -2 muster trian
    [ "$output" = "muster: error: there is no command trian: muster alone lists them" ]
    run -2 muster ../bin/muster-ckpt
    run -2 muster --trian
}

# completes WORDS… : what is offered for the last of them.
completes() {
    local COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _muster "$1" "${@:$#}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf '%s\n' "${COMPREPLY[@]}" | xargs
}

@test "completion offers commands, options, and the words that an option takes" {
    command -v muster-train || skip "this build has no trainer"
    [ "$(completes muster t)" = "tokens train top" ]
    [ "$(completes muster train --lay)" = --layers ]
    [ "$(completes muster-train --print)" = --print-config ]
    [ "$(completes muster-train --model '')" = "gpt2 mlp" ]
    [ "$(completes muster-train --model = g)" = gpt2 ]
    [ "$(completes muster-top --sort t)" = time ]
    [ "$(completes muster-train --model =)" = "gpt2 mlp" ]
    [ "$(completes muster e)" = eval ]
    [ "$(completes muster eval --cpu-isa d)" = default ]
    [ "$(completes muster-ckpt ver)" = verify ]
    [ "$(completes muster ckpt ver)" = verify ]
    [[ " $(completes muster ckpt verify --) " = *" --deep "* ]]
    cd "$BATS_TEST_TMPDIR" && touch "train 1.bin" other
    [ "$(completes muster-train --data tr)" = "train 1.bin" ]
}

@test "on a terminal a program ends with what comes next, elsewhere it does not" {
    command -v script >/dev/null || skip "no script(1): apt-get install bsdutils"
    cd "$BATS_TEST_TMPDIR"
    cat "$MUSTER_TOP/LICENSE" >text
    muster-tokens -q -o train.bin text
    muster-train --data train.bin --ckpt-dir run --layers 1 --width 32 --heads 2 --context 32 \
        --vocabulary 256 --global-batch 4 --microbatch 4 --steps 2 --warmup-steps 1 >/dev/null
    while read -r next command; do
        echo "$command: $next"
        script -qec "$command" typescript >/dev/null
        grep -q "^next: .*$next" typescript
        run bash -c "$command 2>&1"
        [[ $output != *next:* ]]
        rm -rf model
    done <<'END'
show muster-ckpt ls run
muster-report muster-ckpt history run
muster-generate muster-ckpt export run model
muster-report muster-curve run
muster-ckpt muster-where run
muster-train muster-tokens -q -o again.bin text
END
}
