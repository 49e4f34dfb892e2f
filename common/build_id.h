/* SPDX-License-Identifier: Apache-2.0 */
/* The build ID, the linker's hash of this program: equal code has equal IDs. */
#ifndef MUSTER_BUILD_ID_H
#define MUSTER_BUILD_ID_H

/* Hexadecimal digits; "none" if the linker wrote no ID. Static. */
const char *build_id(void);

#endif
