#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# libmuster as it is installed: what it exports, how a program is built with it, and the example as
# a world of one.

load lib/places
load lib/wait_for

setup() {
    : "${MUSTER_PREFIX:?the folder that Muster is installed in}"
    export PKG_CONFIG_PATH=$MUSTER_PREFIX/lib/pkgconfig
    cd "$BATS_TEST_TMPDIR"
}

# build COMPILER… -o PROGRAM SOURCE, as a user does.
build() {
    local libdir
    libdir=$(pkg-config --variable=libdir muster)
    # shellcheck disable=SC2046
    "$@" $(pkg-config --cflags --libs muster) -Wl,-rpath,"$libdir"
}

# The functions that the header declares, one a line.
declared() {
    sed -n 's/^MUSTER_API .*\b\(muster_[a-z_]*\)(.*/\1/p' "$MUSTER_PREFIX/include/muster.h" | sort
}

@test "the library exports what the header declares, under its symbol version, and nothing else" {
    run nm -D --defined-only "$MUSTER_PREFIX/lib/libmuster.so"
    [ "$status" -eq 0 ]
    local later='muster_(saved_.*|ckpt_(load|resume|save)_state|order_.*|word(|_begin|_end))'
    local newest='muster_(ckpt_own|memory|word_gather|saved_read_box|tree_(rank|join))'
    diff <(awk '$2 != "A" { print $3 }' <<<"$output" | sort) <(declared | sed -E "
        s/\$/@@MUSTER_0.1/; /^muster_(ckpt_resume|end)@/s/0.1\$/0.2/
        /^muster_progress@/s/0.1\$/0.3/; /^$later@/s/0.1\$/0.4/
        /^muster_(notice_(begin_beside|record)|worker_begin|ckpt_attempt)@/s/0.1\$/0.5/
        /^muster_phase@/s/0.1\$/0.6/; /^$newest@/s/0.[14]\$/0.7/" | sort)
    [ "$(grep -c 'MUSTER_0.1$' <<<"$output")" -eq 35 ] # and the version's own
    [ "$(declared | wc -l)" -eq 64 ]
    objdump -p "$MUSTER_PREFIX/lib/libmuster.so" | grep -q 'SONAME *libmuster.so.0$'
    # Programs that make no communicator run where there is no NCCL, and none is bound to a release
    # of Slurm.
    ! objdump -p "$MUSTER_PREFIX/lib/libmuster.so" |
        grep -E 'NEEDED.*(nccl|cuda|slurm|gomp|stdc)' || false
}

# What the header declares, and what the synopsis of muster(3) does: one declaration a line, without
# the fonts.
header_lines() {
    tr '\n\t' '  ' <"$MUSTER_PREFIX/include/muster.h" | grep -oE 'MUSTER_API [^;#]*;' |
        sed 's/^MUSTER_API //; s/  */ /g' | sort
}
synopsis_lines() {
    sed -n '/^\.SH SYNOPSIS/,/^\.SH DESCRIPTION/p' "$MUSTER_TOP/doc/muster.3" |
        sed -n 's/^\.BI //p' | awk '
        { line = ""
          while (match($0, /^ *("[^"]*"|[^" ]+)/)) {
              word = substr($0, 1, RLENGTH); $0 = substr($0, RLENGTH + 1)
              sub(/^ */, "", word); gsub(/"/, "", word); line = line word
          }
          print line }' | tr '\n\t' '  ' | sed 's/; */;\n/g' | sed 's/  */ /g' | grep . | sort
}

@test "muster(3) declares every function as the header does, explains it, and its example runs" {
    diff <(header_lines) <(synopsis_lines)
    [ "$(header_lines | wc -l)" -eq "$(declared | wc -l)" ]
    [ -e "$MUSTER_PREFIX/share/man/man3/muster.3" ]
    # Getters speak for themselves.
    sed '1,/^\.SH DESCRIPTION/d' "$MUSTER_TOP/doc/muster.3" >text
    for name in $(declared |
        grep -vE '_(rank|size|count|attempt|job|node|version|free|abort|name|log|step|manifest)$'); do
        grep -qE "^\.(BR|RB \() $name \(\)" text || { echo "$name is not explained" && false; }
    done
    {
        printf '#include <muster.h>\n#include <stdio.h>\nint main(void)\n{\n'
        sed -n '/^\.SH EXAMPLES/,/^\.SH SEE/p' "$MUSTER_TOP/doc/muster.3" |
            sed -n '/^\.nf/,/^\.fi/p' | sed '/^\./d; s/\\e/\\/g'
        printf '}\n'
    } >page.c
    build cc -std=c99 -pedantic -Wall -Wextra -Werror -o page page.c
    run ./page
    [ "$status $output" = "0 rank 0 of 1 on $(hostname)" ]
}

@test "the header is C99 to C23 and C++11 to C++23, without a warning" {
    cat >prog.c <<'END'
#include <muster.h>
#include <stdio.h>
int main(void)
{
	struct muster *muster;
	int status = muster_open(&muster, 10);
	if (status) {
		fprintf(stderr, "%s\n", muster_error());
		return status;
	}
	printf("rank %d of %d, %s\n", muster_rank(muster), muster_world_size(muster), muster_version());
	muster_close(muster, 1);
	return 0;
}
END
    cp prog.c prog.cc
    for standard in c99 c11 c17 c2x; do
        cc -std=$standard -pedantic -Wall -Wextra -Wstrict-prototypes \
            -Werror "-I$MUSTER_PREFIX/include" -fsyntax-only prog.c
    done
    for standard in c++11 c++14 c++17 c++20 c++23; do
        c++ -std=$standard -pedantic -Wall -Wextra -Werror "-I$MUSTER_PREFIX/include" \
            -fsyntax-only prog.cc
    done
    build cc -std=c99 -o c prog.c
    build c++ -std=c++11 -o cc prog.cc
    for program in ./c ./cc; do
        run $program
        [ "$output" = "rank 0 of 1, $(pkg-config --modversion muster)" ]
    done
}

@test "the example stops at a notice with 75, resumes, and comes to the right result" {
    build cc -std=c99 -pedantic -Wall -Wextra -Werror -o ring "$MUSTER_TOP/slurm-examples/ring.c"
    ./ring 60 run >first 2>&1 &
    LOOK_EVERY=0.05 wait_for 10 grep -q 'begin after' first
    sleep 0.3
    kill -TERM $!
    status=0
    wait $! || status=$?
    cat first
    [ $status -eq 75 ]
    ./ring 60 run | tee second
    step=$(sed -n 's/.*1 ranks begin after step //p' second)
    [ "$step" -gt 0 ]
    [ "$step" -lt 60 ]
    grep -qx "ring: after step $step: $(awk -v n="$step" \
        'BEGIN { x = 1; while (n--) x = x * 2 % 1000003; print x }')" first
    grep -qx "ring: after step 60: $(awk \
        'BEGIN { x = 1; n = 60; while (n--) x = x * 2 % 1000003; print x }')" second
    # Of the four saves two stay, once the service has got to it.
    two_stay() { [ "$(ls -d run/step-* | wc -l)" -eq 2 ]; }
    wait_for 10 two_stay
    [ -e run/step-00000060 ]
    # All of it, in as many lines as a reader has patience for.
    [ "$(wc -l <"$MUSTER_TOP/slurm-examples/ring.c")" -le 100 ]
    for group in muster_rank muster_allgather muster_nccl_comm muster_notice_fd muster_ckpt_resume \
        muster_ckpt_save muster_end; do
        grep -qF "$group(" "$MUSTER_TOP/slurm-examples/ring.c"
    done
    # An error is one line with its status.
    run ./ring 60 /proc/nowhere
    [ "$status" -eq 2 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ $output = "ring: "*"/proc/nowhere"* ]]
}
