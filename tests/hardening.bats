#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What is installed is hard to take over: how each program and library was linked and compiled, and
# what the plugin shows to slurmstepd, which runs it as root.

load lib/places

setup() {
    : "${MUSTER_PREFIX:?the folder that Muster is installed in}"
    PLUGIN=$MUSTER_PREFIX/lib/slurm/spank_muster.so
    mapfile -t FILES < <(elf_files)
    [ "${#FILES[@]}" -ge 8 ]
}

# Every program and library that is installed.
elf_files() {
    local file
    find "$MUSTER_PREFIX" -type f \( -perm /111 -o -name '*.so*' \) | while read -r file; do
        [ "$(head -c 4 "$file" | tail -c 3)" != ELF ] || printf '%s\n' "$file"
    done
}

# Whether the compiler was given a flag.
built_with() { grep -q "^MUSTER_CFLAGS = .*$1" "$MUSTER_BUILD/Makefile"; }

# for_all WHAT COMMAND…: the command with each file at its end; names those for which it fails.
for_all() {
    local what=$1 file bad=0
    shift
    for file in "${FILES[@]}"; do
        "$@" "$file" || { echo "$what: ${file#"$MUSTER_PREFIX/"}" && bad=1; }
    done
    return $bad
}

dynamic() { readelf -dW "$1"; }
relocatable() {
    readelf -hW "$1" | grep -q 'Type: *DYN' && {
        [[ $1 = *.so* ]] || dynamic "$1" | grep -q 'FLAGS_1.*PIE'
    }
}
bound_at_start() { readelf -lW "$1" | grep -q GNU_RELRO && dynamic "$1" | grep -q 'FLAGS_1.* NOW'; }
no_page_to_write_and_run() {
    readelf -lW "$1" | grep -q 'GNU_STACK.* RW ' && ! readelf -lW "$1" | grep -q ' RWE ' &&
        ! dynamic "$1" | grep -q TEXTREL
}
# A library that is looked for where the user stands, or beside the program, may be the user's.
looks_in_system_folders() {
    ! dynamic "$1" | sed -n 's/.*R.*PATH.*\[\(.*\)\]/\1/p' | tr : '\n' | grep -vE '^/(usr|opt|lib)'
}
imports() { readelf --dyn-syms -W "$2" | grep -q "UND $1"; }
indirect_targets() { [ "$(objdump -d --no-show-raw-insn "$1" | grep -c 'endbr64')" -ge 10 ]; }

@test "every program and library can be moved in memory, is bound before it starts, and has no page to write and run" {
    for_all "not relocatable" relocatable
    for_all "not bound at its start" bound_at_start
    for_all "a page to write and run" no_page_to_write_and_run
    for_all "libraries from where a user may put one" looks_in_system_folders
}

@test "the compiler watches stacks, buffers and jumps, as far as it can" {
    built_with -fstack-protector-strong
    built_with -fstack-clash-protection
    for_all "no guard on the stack" imports __stack_chk_fail
    if built_with -D_FORTIFY_SOURCE; then for_all "no checks of buffers" imports '__.*_chk@'; fi
    if built_with -fcf-protection; then for_all "no marks for jumps" indirect_targets; fi
}

@test "what runs for a user outside the limits of his job is nothing that he can read, and so trace" {
    [ "$(stat -c %a "$MUSTER_PREFIX/bin/muster-ckptd")" = 711 ]
    [ -e "$PLUGIN" ] || return 0
    [ "$(stat -c %a "$MUSTER_PREFIX"/libexec/muster-{first-node,requeue} | sort -u)" = 711 ]
}

@test "the plugin exports what Slurm looks for and nothing else, and loads no library but the C library" {
    [ -e "$PLUGIN" ] || skip "this build has no plugin: no Slurm headers"
    run nm -D --defined-only "$PLUGIN"
    [ "$status" -eq 0 ]
    run awk '{ print $3 }' <<<"$output"
    [ "$output" = "plugin_name
plugin_type
plugin_version
slurm_spank_exit
slurm_spank_init
slurm_spank_init_post_opt
slurm_spank_job_epilog
slurm_spank_job_prolog
slurm_spank_task_exit
slurm_spank_task_init
slurm_spank_user_init
spank_plugin_version" ]
    run sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' <<<"$(dynamic "$PLUGIN")"
    [ -z "$(grep -vE '^lib(c|m|pthread|dl)\.so' <<<"$output")" ]
}
