/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/model/graph_trial.h"

#define EACH (GRAPH_TRIAL_SKIPPED + GRAPH_TRIAL_TIMED)

/* Times steps without graphs first; after the trial uses what was faster. */
bool graph_trial_uses(const struct graph_trial *trial)
{
	return trial->steps < 2 * EACH ? trial->steps >= EACH : trial->least[1] < trial->least[0];
}

bool graph_trial_step(struct graph_trial *trial, double seconds)
{
	if (trial->steps >= 2 * EACH)
		return false;
	double *least = &trial->least[trial->steps / EACH];
	int step = trial->steps++ % EACH;
	if (step == GRAPH_TRIAL_SKIPPED || (step > GRAPH_TRIAL_SKIPPED && seconds < *least))
		*least = seconds;
	return trial->steps == 2 * EACH;
}
