/* SPDX-License-Identifier: Apache-2.0 */
/* What muster-requeue --later prints last when it has to be asked again. */
#ifndef MUSTER_LATER_H
#define MUSTER_LATER_H

#define LATER_AWAY "later: the controller is away"
#define LATER_ENDED "later: the job is ending"

#endif
