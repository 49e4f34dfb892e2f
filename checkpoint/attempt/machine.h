/* SPDX-License-Identifier: Apache-2.0 */
/* What machine this is, in words for people: "AMD EPYC 7B13 (16 CPUs, 68.7 GB)". */
#ifndef MUSTER_MACHINE_H
#define MUSTER_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#define MACHINE_SIZE 128

void machine_text(char out[MACHINE_SIZE]);

/* The same from the text of /proc/cpuinfo, as a pure function. */
void machine_describe(const char *cpuinfo, long cpus, double bytes, char out[MACHINE_SIZE]);

#endif
