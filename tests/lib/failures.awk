# SPDX-License-Identifier: Apache-2.0
# Of the notes of tap.awk on the test file `file`: a line for each failure, with the place that
# failed and the first lines after it that look like messages.
/^    [^#]/ {
    skip = tolower($0) ~ /# skip/
    place = messages = 0
    if (!skip) print "failed: " file ": " substr($0, 5)
    next
}
skip { next }
++place <= 2 || (/(muster|error|slurmctld): |FAIL|E(rror|RROR)|[Rr]equeue/ && ++messages <= 10) {
    print substr($0, 1, 200)
}
