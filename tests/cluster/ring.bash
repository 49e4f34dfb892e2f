# SPDX-License-Identifier: Apache-2.0
# The example of libmuster, slurm-examples/ring.c. A file says load helpers and load ring.
# shellcheck shell=bash

# For setup_file, after cluster_begin: $JOBS/ring.
ring_build() {
    # As a user builds it, with the checks of a careful one.
    export PKG_CONFIG_PATH=$MUSTER_PREFIX/lib/pkgconfig
    # shellcheck disable=SC2046
    cc -std=c99 -pedantic -Wall -Wextra -Werror "$MUSTER_TOP/slurm-examples/ring.c" \
        $(pkg-config --cflags --libs muster) \
        -Wl,-rpath,"$(pkg-config --variable=libdir muster)" -o "$JOBS/ring"
}

# ring_result STEPS RANKS: the line that the example ends with, computed without it.
ring_result() {
    awk -v steps="$1" -v ranks="$2" 'BEGIN {
        for (i = 0; i < ranks; i++) x[i] = i + 1
        for (s = 0; s < steps; s++) {
            for (i = 0; i < ranks; i++) y[i] = (x[i] + x[(i + ranks - 1) % ranks]) % 1000003
            for (i = 0; i < ranks; i++) x[i] = y[i]
        }
        printf "ring: after step %d:", steps
        for (i = 0; i < ranks; i++) printf " %d", x[i]
    }'
}
