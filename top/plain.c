/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the locale about each character. */
#include "config.h"

#include "top/plain.h"

#include <langinfo.h>
#include <string.h>
#include <wchar.h>

int plain_fit(const char *text, int columns, char *out, size_t size)
{
	mbstate_t state = { 0 };
	size_t left = strlen(text), used = 0;
	int taken = 0;
	while (left > 0) {
		wchar_t character;
		size_t bytes = mbrtowc(&character, text, left, &state);
		const bool whole = bytes != (size_t)-1 && bytes != (size_t)-2;
		int width = whole ? wcwidth(character) : -1;
		if (!whole) {
			memset(&state, 0, sizeof state);
			bytes = 1;
		}
		const char *put = width < 0 ? "?" : text;
		const size_t length = width < 0 ? 1 : bytes;
		width = width < 0 ? 1 : width;
		if (taken + width > columns || used + length >= size)
			break;
		memcpy(out + used, put, length);
		used += length;
		taken += width;
		text += bytes;
		left -= bytes;
	}
	out[used] = '\0';
	return taken;
}

bool plain_is_unicode(void)
{
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}
