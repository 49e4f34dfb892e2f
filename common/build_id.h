/* SPDX-License-Identifier: Apache-2.0 */
/* The build's id: the linker's hash of this program, the same for equal code. */
#ifndef MUSTER_BUILD_ID_H
#define MUSTER_BUILD_ID_H

/* Hexadecimal digits; "none" where the linker gave it no id. */
const char *build_id(void);

#endif
