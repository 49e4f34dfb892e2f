/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648, section 4): bytes as text, where a channel takes no others. */
#ifndef MUSTER_BASE64_H
#define MUSTER_BASE64_H

#include <stddef.h>

/* Characters of `size` bytes, without the NUL. */
#define BASE64_LENGTH(size) (((size) + 2) / 3 * 4)

/* Writes BASE64_LENGTH(size) characters and a NUL. */
void base64_encode(const void *data, size_t size, char *out);

/* Reads `length` characters into at most `room` bytes. Returns how many bytes; -1 if they are not
 * what base64_encode writes, or are more. */
long base64_decode(const char *text, size_t length, void *out, size_t room);

#endif
