/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648, section 4), for channels that carry only text. */
#ifndef MUSTER_BASE64_H
#define MUSTER_BASE64_H

#include <stddef.h>

/* Characters that encode `size` bytes, without the NUL. */
#define BASE64_LENGTH(size) (((size) + 2) / 3 * 4)

/* Writes BASE64_LENGTH(size) characters and a NUL. */
void base64_encode(const void *data, size_t size, char *out);

/* Decodes `length` characters to at most `room` bytes. Returns the number of bytes; -1 if the text
 * is not what base64_encode writes, or needs more room. */
long base64_decode(const char *text, size_t length, void *out, size_t room);

#endif
