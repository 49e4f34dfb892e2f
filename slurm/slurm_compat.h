/* SPDX-License-Identifier: Apache-2.0 */
/* All differences between the releases of Slurm that we build against (22.05 to 26.05),
 * chosen by configure's probes. */
#ifndef MUSTER_SLURM_COMPAT_H
#define MUSTER_SLURM_COMPAT_H

#include <dlfcn.h>
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "slurm/hooks.h"

#ifndef PROLOG_FLAG_RUN_IN_JOB
#define PROLOG_FLAG_RUN_IN_JOB 0 /* before 24.05 */
#endif

/* The slurm.conf that the process around the plugin has read; NULL if it has not. The symbol is not
 * public, but the plugin only loads into the Slurm release that it was built for. */
static inline const slurm_conf_t *slurm_compat_conf(void)
{
	return dlsym(RTLD_DEFAULT, "slurm_conf");
}

/* How slurm.conf has prologs and epilogs run. From 25.05 on each has its own timeout. */
static inline struct hooks slurm_compat_hooks(const slurm_conf_t *conf)
{
#ifdef SLURM_CONF_HAS_EPILOG_TIMEOUT
	int prolog = conf->prolog_timeout, epilog = conf->epilog_timeout;
#else
	int prolog = conf->prolog_epilog_timeout, epilog = prolog;
#endif
	return (struct hooks) { .in_job = conf->prolog_flags & PROLOG_FLAG_RUN_IN_JOB,
		.serial = conf->prolog_flags & PROLOG_FLAG_SERIAL,
		.prolog = hooks_timeout(prolog),
		.epilog = hooks_timeout(epilog) };
}

/* The job argument of slurm_load_job() and slurm_requeue(): from 26.05 on a step ID, which can name
 * a single run of the job by the value of slurm_compat_run(); 0: whichever run there is. Before
 * 26.05, a call of slurm_requeue() that the controller handles late affects the run that there is
 * by then. */
#ifdef SLURM_CALLS_TAKE_STEP_ID
static inline slurm_step_id_t slurm_compat_job(uint32_t id, uint64_t run)
{
	return (
		slurm_step_id_t) { .sluid = run, .job_id = id, .step_id = NO_VAL, .step_het_comp = NO_VAL };
}

static inline uint64_t slurm_compat_run(const slurm_job_info_t *info)
{
	return info->step_id.sluid;
}
#else
static inline uint32_t slurm_compat_job(uint32_t id, uint64_t run)
{
	return id;
}

static inline uint64_t slurm_compat_run(const slurm_job_info_t *info)
{
	return 0;
}
#endif

/* Sets which job a change is for: from 25.11 on in a step ID. */
static inline void slurm_compat_describe(job_desc_msg_t *change, uint32_t id)
{
#ifdef SLURM_JOB_DESC_HAS_STEP_ID
	change->step_id.job_id = id;
#else
	change->job_id = id;
#endif
}

/* Whether a call that failed with this error may succeed later: the controller is unreachable, busy
 * or a standby. */
static inline bool slurm_compat_may_pass(int error)
{
	switch (error) {
	case SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR:
	case SLURMCTLD_COMMUNICATIONS_SEND_ERROR:
	case SLURMCTLD_COMMUNICATIONS_RECEIVE_ERROR:
	case SLURMCTLD_COMMUNICATIONS_SHUTDOWN_ERROR:
	case SLURM_COMMUNICATIONS_CONNECTION_ERROR:
	case SLURM_COMMUNICATIONS_SEND_ERROR:
	case SLURM_COMMUNICATIONS_RECEIVE_ERROR:
	case SLURM_COMMUNICATIONS_SHUTDOWN_ERROR:
	case SLURM_COMMUNICATIONS_MISSING_SOCKET_ERROR:
	case SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT:
	case SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT:
	case ESLURM_IN_STANDBY_MODE:
	case ESLURM_IN_STANDBY_USE_BACKUP:
#if HAVE_DECL_SLURM_PROTOCOL_SOCKET_IMPL_ZERO_RECV_LENGTH
	case SLURM_PROTOCOL_SOCKET_IMPL_ZERO_RECV_LENGTH: /* to 22.05 */
#endif
#if HAVE_DECL_SLURMCTLD_COMMUNICATIONS_BACKOFF
	case SLURMCTLD_COMMUNICATIONS_BACKOFF:
#endif
#if HAVE_DECL_SLURMCTLD_COMMUNICATIONS_HARD_DROP
	case SLURMCTLD_COMMUNICATIONS_HARD_DROP:
#endif
#if HAVE_DECL_SLURM_COMMUNICATIONS_CONNECT_TIMEOUT
	case SLURM_COMMUNICATIONS_CONNECT_TIMEOUT:
	case SLURM_COMMUNICATIONS_WRITE_TIMEOUT:
	case SLURM_COMMUNICATIONS_READ_TIMEOUT:
#endif
	case ECONNREFUSED:
	case ETIMEDOUT:
	case EAGAIN: return true;
	default: return false;
	}
}

#endif
