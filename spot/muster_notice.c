/* SPDX-License-Identifier: Apache-2.0 */
/* muster-notice: prints a line when a cloud is about to take this machine away. A rank of each node
 * runs it (launch/spot_watch.c): libcurl and the replies of others stay out of the training. */
#include "config.h"

#include <argp.h>
#include <err.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/descriptors.h"
#include "spot/look.h"

#define TOLERATED 3         /* looks that may fail in a row before that is told */
#define PAUSE_MOST 30.0     /* seconds between looks that fail */
#define DURABLE "durable\n" /* the word on standard input */

struct options {
	const char *source;
	bool once;
};

static const struct argp_option option_table[] = {
	{ "once", 'o', NULL, 0,
		"look once: exit with 75 if there is a notice, 0 if there is none, 69 if nobody answers",
		0 },
	{ 0 },
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'o': options->once = true; return 0;
	case ARGP_KEY_ARG:
		if (options->source)
			argp_error(state, "%s: too many arguments", arg);
		options->source = arg;
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = option_table,
	.parser = parse_option,
	.args_doc = "[SOURCE]",
	.doc =
		"Waits until a cloud is about to take this machine away, and prints \"notice WHY\". SOURCE "
		"is auto (the cloud that this machine is in), aws, gcp, azure, one of these with =URL, or "
		"the URL of a page.\vEnds with its standard input. The line \"durable\" there "
		"acknowledges Azure's event. Exit status: 0, or with --once as above; 2 usage.",
};

static int tell(const char *word, const char *text)
{
	printf("%s%s\n", word, text);
	return fflush(stdout) == 0 ? 0 : -1;
}

/* After a notice: until standard input ends. */
static int wait_for_durable(struct look *look, const struct spot_notice *notice)
{
	char line[100];
	struct err err;
	http_close(look->http);
	look->http = http_open(-1, &err); /* what is on standard input ends no request any more */
	while (look->http && fgets(line, sizeof line, stdin)) {
		if (strcmp(line, DURABLE) != 0)
			continue;
		if (look_acknowledge(look, notice, &err) == LOOK_FAILED)
			warnx("couldn't acknowledge the event: %s", err.text);
		if (tell("acknowledged", "") < 0)
			break;
	}
	return EXIT_OK;
}

/* A service that does not answer may do so later. */
static void note_failure(int failures, const char *cloud, const char *why)
{
	if (failures == TOLERATED)
		warnx("%s: %s: no notice can come until that works; still asking", cloud, why);
}

static int watch(struct look *look)
{
	const char *cloud = spot_cloud_name(look->source->cloud);
	int failures = 0;
	for (;;) {
		struct spot_notice notice;
		struct err err;
		enum look_result rc = look_once(look, &notice, &err);
		if (rc == LOOK_NOTICE)
			return tell("notice ", notice.text) < 0 ? EXIT_FAULT : wait_for_durable(look, &notice);
		if (rc == LOOK_FAILED)
			note_failure(++failures, cloud, err.text);
		else if (failures >= TOLERATED)
			warnx("%s: answers again", cloud);
		failures = rc == LOOK_FAILED ? failures : 0;
		double pause = failures ? fmin(PAUSE_MOST, failures * look_pause(look)) : look_pause(look);
		if (rc == LOOK_STOPPED || !http_pause(look->http, pause))
			return EXIT_OK;
	}
}

static int once(struct look *look)
{
	struct spot_notice notice;
	struct err err;
	switch (look_once(look, &notice, &err)) {
	case LOOK_NOTICE: tell("notice ", notice.text); return EXIT_REQUEUE;
	case LOOK_FAILED:
		warnx("%s: %s", spot_cloud_name(look->source->cloud), err.text);
		return EXIT_LOST;
	default: return EXIT_OK;
	}
}

/* What Slurm sends to a step is for its ranks, not for a program that one of them runs. */
static void ignore_steps_signals(void)
{
	static const int signals[] = { SIGTERM, SIGUSR1, SIGUSR2, SIGINT, SIGHUP };
	struct stat st;
	signal(SIGPIPE, SIG_IGN);
	if (fstat(STDIN_FILENO, &st) < 0 || !S_ISSOCK(st.st_mode))
		return;
	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
		signal(signals[i], SIG_IGN);
}

int main(int argc, char **argv)
{
	static struct look look;
	struct options options = { 0 };
	struct spot_source source;
	struct err err;
	descriptors_raise();
	setlinebuf(stderr); /* other programs write to the same log */
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	ignore_steps_signals();
	if (spot_source_read(options.source, &source, &err) < 0) {
		warnx("%s", err.text);
		return EXIT_USAGE;
	}
	if (source.cloud == SPOT_OFF && options.source && strcmp(options.source, "off") == 0)
		return EXIT_OK;
	if (source.cloud == SPOT_OFF) {
		warnx("this machine is in no cloud that is known here: give a SOURCE");
		return EXIT_USAGE;
	}
	look = (struct look) { .source = &source };
	look.http = http_open(options.once ? -1 : STDIN_FILENO, &err);
	if (!look.http) {
		warnx("%s", err.text);
		return EXIT_FAULT;
	}
	int status = options.once ? once(&look) : watch(&look);
	http_close(look.http);
	return status;
}
