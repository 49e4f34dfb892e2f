#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Every program may have as many files and connections open as its process is allowed.

load lib/places

# A library that says, when its process ends, how many that may be.
say_limit() {
    "${CC:-cc}" -shared -fPIC -o "$1" -x c - <<'END'
#include <stdio.h>
#include <sys/resource.h>
__attribute__((destructor)) static void say(void)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	fprintf(stderr, "limit %llu\n", (unsigned long long)limit.rlim_cur);
}
END
}

@test "every program raises the limit of open files to the most that it may have" {
    : "${MUSTER_PREFIX:?the folder that Muster is installed in}"
    local library=$BATS_TEST_TMPDIR/limit.so program said count=0
    say_limit "$library"
    ulimit -Sn 200
    for program in "$MUSTER_PREFIX"/bin/* "$MUSTER_PREFIX"/libexec/*; do
        [ "$(head -c 4 "$program" | tail -c 3)" = ELF ] || continue
        said=$(env LD_PRELOAD="$library" "$program" --help 2>&1 >/dev/null) || :
        grep -qx "limit $(ulimit -Hn)" <<<"$said" || { echo "$program: $said" && return 1; }
        count=$((count + 1))
    done
    [ $count -ge 8 ]
}
