# SPDX-License-Identifier: Apache-2.0
# Counts the results in the TAP of one test program whose exit status is `status`. Prints "passed
# failed skipped", then a line for each skip and each failure with the comments that follow it. What
# was planned and did not report has failed, and so has a program that ended badly without saying
# what failed. (cmocka writes a skip as "not ok # SKIP", and one plan a group. The text of its
# fail_msg goes to standard error, so it does not stand at its failure: such texts come last.)
/^1\.\.[0-9]+/ {
    planned += substr($1, 4); plans++; failing = 0
    if (/# *[Ss][Kk][Ii][Pp]/) { skipped++; note($0) }
    next
}
/^(not )?ok .*# *[Ss][Kk][Ii][Pp]/ { results++; skipped++; failing = 0; note($0); next }
/^ok/ { results++; passed++; failing = 0; next }
/^not ok/ { results++; failed++; failing = 1; note($0); next }
/^ERROR: / { texts = texts "    # " $0 "\n"; next }
failing { note($0) }
function note(line) { notes = notes "    " line "\n" }
END {
    missing = planned - results
    if (missing > 0) { note(missing " planned results are missing"); failed += missing }
    if (!plans) { note("no plan: it printed no TAP"); failed++ }
    if (status == 124 || status == 137) { note("ended by its time limit"); failed += !failed }
    else if (status && !failed) {
        note("ended with status " status ", though no result says why")
        failed++
    }
    printf "%d %d %d\n%s%s", passed, failed, skipped, notes, failed ? texts : ""
}
