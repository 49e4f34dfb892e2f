/* SPDX-License-Identifier: Apache-2.0 */
/* Seconds after which what a test waits for is taken to hang: much longer than a disk may stall,
 * and than a service may wait for a processor that nobody else wants. */
#ifndef MUSTER_TEST_HANG_H
#define MUSTER_TEST_HANG_H

#define HANG_SECONDS 120

#endif
