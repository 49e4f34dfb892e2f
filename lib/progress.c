/* SPDX-License-Identifier: Apache-2.0 */
/* Records progress where slurmstepd finds it however this process ends. */
#include "common/log.h"
#include "lib/muster_private.h"

void muster_progress(void)
{
	log_progress();
}
