/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the page of a report together. Its parts are files, which the assembler copies into this
 * program; dygraphs (https://dygraphs.com, MIT license) draws the charts. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/record.h"
#include "runs/report.h"

/* Defines NAME, a string, as what the file holds. */
#define PART(name, file) \
	__asm__(".pushsection .rodata\n" \
			".hidden " #name "\n" \
			".global " #name "\n" #name ":\n" \
			".incbin \"" file "\"\n" \
			".byte 0\n" \
			".popsection\n"); \
	extern const char name[]

PART(report_css, REPORT_SOURCES "/report.css");
PART(report_js, REPORT_SOURCES "/report.js");
PART(dygraph_css, DYGRAPHS "/dygraph.min.css");
PART(dygraph_js, DYGRAPHS "/dygraph.min.js");

/* Nothing of the page may ask the network for anything. */
static const char policy[] =
	"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/* Inside of <script>, "<" could begin its end; JSON may spell it otherwise. */
static void write_json(const char *text, FILE *out)
{
	for (const char *next; (next = strchr(text, '<')); text = next + 1) {
		fwrite(text, 1, (size_t)(next - text), out);
		fputs("\\u003c", out);
	}
	fputs(text, out);
}

static void write_text(const char *text, FILE *out)
{
	for (; *text; text++) {
		if (*text == '<')
			fputs("&lt;", out);
		else if (*text == '&')
			fputs("&amp;", out);
		else
			fputc(*text, out);
	}
}

int report_page(const json_t *report, FILE *out, struct err *err)
{
	AUTO_FREE char *text = record_dump(report, JSON_COMPACT | JSON_REAL_PRECISION(12));
	if (!text)
		return err_set(err, "report: out of memory");
	fprintf(out,
		"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n"
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
		policy);
	write_text(json_string_value(json_object_get(report, "title")), out);
	fprintf(out,
		"</title>\n<style>\n%s\n%s</style>\n</head>\n<body>\n<main id=\"main\"></main>\n"
		"<noscript>This report is drawn by JavaScript, which is switched off here.</noscript>\n"
		"<script type=\"application/json\" id=\"report\">",
		dygraph_css, report_css);
	write_json(text, out);
	fprintf(out, "</script>\n<script>\n%s</script>\n<script>\n%s</script>\n</body>\n</html>\n",
		dygraph_js, report_js);
	return 0;
}
