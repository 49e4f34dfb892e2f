/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces itself by another program and tells it, in the environment, the time of its exec, for
 * launch.py, so that a launch is timed from there.
 *     launch_start NAME PROGRAM [ARGUMENT…]
 * NAME is set to nanoseconds of CLOCK_MONOTONIC, which all namespaces of a machine share. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct timespec now;
	char text[32];

	if (argc < 3) {
		fprintf(stderr, "usage: launch_start NAME PROGRAM [ARGUMENT...]\n");
		return 2;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(text, sizeof text, "%lld", (long long)now.tv_sec * 1000000000 + now.tv_nsec);
	setenv(argv[1], text, 1);
	execvp(argv[2], argv + 2);
	fprintf(stderr, "launch_start: couldn't run %s: %m\n", argv[2]);
	return 127;
}
