/* SPDX-License-Identifier: Apache-2.0 */
/* The main of a test program where the build lacks what it tests: SKIP_MAIN("why"). */
#ifndef MUSTER_TESTS_SKIP_MAIN_H
#define MUSTER_TESTS_SKIP_MAIN_H

#include <stdio.h>

#define SKIP_MAIN(why) \
	int main(void) \
	{ \
		return puts("1..0 # SKIP " why) < 0; \
	}

#endif
