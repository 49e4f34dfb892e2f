/* SPDX-License-Identifier: Apache-2.0 */
/* The last line that muster-requeue --later prints: it has answered, it has to be asked again, the
 * attempt has ended on all nodes that Slurm knows of and another has taken its place, or Slurm
 * holds the job since it was started again where this attempt still ran. Without one it was killed
 * before it had answered. */
#ifndef MUSTER_LATER_H
#define MUSTER_LATER_H

#define LATER_DONE "done"
#define LATER_AWAY "later: the controller is away"
#define LATER_ENDED "later: the job is ending"
#define LATER_OVER "over: Slurm has ended this attempt"
#define LATER_HELD "held: a node has refused to start the job"

#endif
