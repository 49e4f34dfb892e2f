/* SPDX-License-Identifier: Apache-2.0 */
/* Times this rank's first steps without graphs, then with them, and keeps the shortest of each
 * kind. */
#include "trainer/model/graph_trial.h"

#define EACH (GRAPH_TRIAL_SKIPPED + GRAPH_TRIAL_TIMED)

/* Without graphs first; after the trial, the kind whose shortest step was shorter. */
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
