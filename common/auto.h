/* SPDX-License-Identifier: Apache-2.0 */
/* Local variables that release themselves when they leave their scope. */
#ifndef MUSTER_AUTO_H
#define MUSTER_AUTO_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void auto_free_(void *p)
{
	free(*(void **)p);
}
static inline void auto_close_(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
static inline void auto_fclose_(FILE **f)
{
	if (*f)
		fclose(*f);
}

#define AUTO_FREE __attribute__((cleanup(auto_free_)))     /* any malloc'ed pointer, or NULL */
#define AUTO_CLOSE __attribute__((cleanup(auto_close_)))   /* int file descriptor, or -1 */
#define AUTO_FCLOSE __attribute__((cleanup(auto_fclose_))) /* FILE *, or NULL */

/* Hands the value of an AUTO_FREE pointer to a longer-lived owner. */
#define AUTO_TAKE(p) \
	({ \
		__typeof__(p) taken_ = (p); \
		(p) = NULL; \
		taken_; \
	})

/* The same for an AUTO_CLOSE descriptor. */
#define AUTO_TAKE_FD(fd) \
	({ \
		int taken_ = (fd); \
		(fd) = -1; \
		taken_; \
	})

#endif
