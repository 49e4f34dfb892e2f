/* SPDX-License-Identifier: Apache-2.0 */
/* What the timeouts of a site's hooks leave to a checkpoint service. */
#include "config.h"

#include "slurm/hooks.h"

#include <stdio.h>

#define NOT_SET 65534 /* NO_VAL16 */

int hooks_timeout(long seconds)
{
	return seconds <= 0 || seconds == NOT_SET ? 0 : (int)seconds;
}

bool hooks_allow_service(const struct hooks *hooks)
{
	return !hooks->in_job && !hooks->serial
		&& hooks_drain(hooks->prolog, HOOKS_PROLOG_SECONDS, 1) == 1
		&& hooks_drain(hooks->epilog, HOOKS_EPILOG_SECONDS, 1) == 1;
}

int hooks_drain(int timeout, int other, int drain)
{
	int fits = timeout - other;
	if (timeout == 0 || drain <= fits)
		return drain;
	return fits < 0 ? -1 : fits;
}

#define FORMAT "prolog %d epilog %d in-job %d serial %d"

char *hooks_print(const struct hooks *hooks, char *out, size_t size)
{
	snprintf(out, size, FORMAT "\n", hooks->prolog, hooks->epilog, hooks->in_job, hooks->serial);
	return out;
}

bool hooks_parse(struct hooks *hooks, const char *text)
{
	int prolog, epilog, in_job, serial;
	*hooks = (struct hooks) { 0 };
	if (sscanf(text, FORMAT, &prolog, &epilog, &in_job, &serial) != 4)
		return false;
	*hooks =
		(struct hooks) { in_job != 0, serial != 0, hooks_timeout(prolog), hooks_timeout(epilog) };
	return true;
}
