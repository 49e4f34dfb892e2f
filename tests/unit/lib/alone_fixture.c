/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/lib/alone_fixture.h"

struct muster *muster;

void assert_ok(int status)
{
	if (status != MUSTER_OK)
		fail_msg("status %d: %s", status, muster_error());
}

void assert_refused(int status, int wanted, const char *words)
{
	assert_int_equal(status, wanted);
	if (!strstr(muster_error(), words))
		fail_msg("'%s' is not in: %s", words, muster_error());
}

int alone_setup(void)
{
	char service[PATH_MAX];
	static const char *const foreign[] = { "PMIX_RANK", "PMIX_NAMESPACE", "SLURM_JOB_ID",
		"SLURM_STEP_ID", "SLURM_PROCID", "RANK", "WORLD_SIZE", "MUSTER_RDZV", "MUSTER_RDZV_DIR",
		"MUSTER_CKPTD", "MUSTER_ATTEMPT" };
	for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
		unsetenv(foreign[i]);
	/* Tests run in the build folder. */
	if (!realpath("muster-ckptd", service))
		return -1;
	setenv("MUSTER_CKPTD_PROGRAM", service, 1);
	return muster_open(&muster, 30) == MUSTER_OK ? 0 : -1;
}
