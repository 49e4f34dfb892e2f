/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder of a program with libmuster. */
#include "common/log.h"
#include "lib/muster_private.h"

_Static_assert((int)MUSTER_PHASE_DATA == FLIGHT_DATA && (int)MUSTER_PHASE_UPDATE == FLIGHT_UPDATE
		&& (int)MUSTER_PHASE_VALIDATE == FLIGHT_VALIDATE
		&& (int)MUSTER_PHASE_FORWARD == FLIGHT_FORWARD
		&& (int)MUSTER_PHASE_BACKWARD == FLIGHT_BACKWARD && (int)MUSTER_PHASE_STEP == FLIGHT_STEP,
	"the phases of lib/muster.h are those of the flight recorder");

static void note(struct muster *muster)
{
	flight_begin(muster->flight, muster->phase, muster->step, -1);
}

enum flight_phase muster_stand(struct muster *muster, enum flight_phase phase)
{
	enum flight_phase before = muster->phase;
	if (pthread_equal(pthread_self(), muster->thread)) {
		muster->phase = phase;
		note(muster);
	}
	return before;
}

void muster_phase(struct muster *muster, enum muster_phase phase, int64_t step)
{
	if (!muster || step < 1)
		return;
	switch (phase) {
	case MUSTER_PHASE_DATA:
	case MUSTER_PHASE_UPDATE:
	case MUSTER_PHASE_VALIDATE:
	case MUSTER_PHASE_FORWARD:
	case MUSTER_PHASE_BACKWARD:
	case MUSTER_PHASE_STEP: break;
	default: return;
	}
	muster->phase = (enum flight_phase)phase;
	muster->step = (uint64_t)step;
	note(muster);
}

void muster_keep_flight(struct muster *muster, const char *dir)
{
	struct err err;
	if (muster->flight_file.name[0])
		return;
	if (flight_file_open(&muster->flight_file, muster->flight, &muster->ident, dir, &err) < 0)
		log_info("the flight recorder of this rank can't be read after the rank is killed: %s",
			err.text);
}

void muster_end_flight(struct muster *muster, bool orderly)
{
	if (orderly)
		flight_file_remove(&muster->flight_file);
	else
		flight_file_leave(&muster->flight_file);
	flight_destroy(muster->flight);
}
