/* SPDX-License-Identifier: Apache-2.0 */
/* Finds Muster's other programs, also where its folder was moved after the build. */
#ifndef MUSTER_INSTALLED_H
#define MUSTER_INSTALLED_H

#include <stddef.h>

/* Writes the path of program NAME: beside the file that holds this code (libmuster, or a program),
 * in the folder KIND ("bin", "libexec") beside that file's folder, the same for the program that
 * runs, or else in CONFIGURED. Returns 0, or -1 where it is in none of them; then the path is that
 * in CONFIGURED. */
int installed_program(const char *kind, const char *configured, const char *name, char *path,
	size_t size);

#endif
