/* SPDX-License-Identifier: Apache-2.0 */
/* ckptd_proto: each message comes back as it was, and no member can be left out, be of another
 * type, or stand outside its range. ckptd_conn: in whatever pieces it comes, and with whatever
 * descriptors. */
#include "config.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "checkpoint/protocol/ckptd_conn.h"
#include "checkpoint/protocol/ckptd_tcp.h"
#include "common/auto.h"
#include "common/bytes.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

#define WHOLE .box_dims = CKPTD_NO_SHAPE, .box_offset_dims = CKPTD_NO_SHAPE

static struct ckptd_tensor tensors[] = {
	{ "wte", SAFETENSORS_F32, 2, { 7, 5 }, 0, 0, WHOLE },
	{ "half", SAFETENSORS_BF16, 1, { 3 }, 0, 142, WHOLE },
	{ "other", SAFETENSORS_F64, 1, { 2 }, 1, CKPTD_NO_OFFSET, WHOLE },
	{ "scalar", SAFETENSORS_U8, 0, { 0 }, 1, 4095, WHOLE },
	{ "mask", SAFETENSORS_BOOL, 2, { 2, 3 }, 0, 160, true, 2, 2, { { 4, 3 }, { 2, 0 } } },
};

static struct ckptd_slice slices[] = {
	{ 0, 20, 15, 0, { 1024, 2048, 4036 } },
	{ 0, 0, 20, 1, { CKPTD_NO_OFFSET, CKPTD_NO_OFFSET, CKPTD_NO_OFFSET } },
};

static const char *lines[] = { "one", "", "three" };

static const struct ckptd_message samples[] = {
	{ .type = CKPTD_ATTACH,
		.attach = { .token = TOKEN,
			.path = "/a \"b\"\n",
			.attempt = 3,
			.world_size = 8,
			.seed = UINT64_MAX,
			.part = 0,
			.parts = 2,
			.shard_size = INT64_MAX,
			.keep_last = 3,
			.keep_every = 1000,
			.keep_best = 1,
			.buffers = 2,
			.buffer_bytes = 4096,
			.umask = 0777,
			.host = "::1",
			.port = 65535,
			.secret = TOKEN } },
	{ .type = CKPTD_SAVE,
		.save = { .buffer = 1,
			.at = { INT64_MAX, 12, 0.1, NAN },
			.config = "{}",
			.numerics = "{}",
			.model = "",
			.values = "{\"epoch\": 1}",
			.tensors = tensors,
			.tensor_count = 5,
			.slices = slices,
			.slice_count = 2 } },
	{ .type = CKPTD_SAVE, .save = { .buffer = -1, .at = { 0, 0, NAN, -1e-300 } } },
	{ .type = CKPTD_ATTACHED, .attached = { 1, 0 } },
	{ .type = CKPTD_PROGRESS, .progress = { 1, 2, 3 } },
	{ .type = CKPTD_SAVE_WRITTEN, .result = { SAVE_WRITTEN, 1, 2, 0.25, .taken = false } },
	{ .type = CKPTD_SAVE_DURABLE, .result = { SAVE_DURABLE, 1, 2, 0.25, .taken = true } },
	{ .type = CKPTD_SAVE_FAILED, .result = { SAVE_FAILED, 1, .err = { EXIT_LOST, "no space" } } },
	{ .type = CKPTD_STATUS },
	{ .type = CKPTD_STATE, .state = { 17, 0, "4711", lines, 3 } },
	{ .type = CKPTD_FINISH, .finish = { 86400 } },
	{ .type = CKPTD_FINISHED, .finished = { .lines = lines, .count = 2 } },
	{ .type = CKPTD_HELLO, .hello = { TOKEN, TOKEN, 1, 2 } },
	{ .type = CKPTD_PART, .part = { 5, "{}", 0, NULL } },
	{ .type = CKPTD_PART, .part = { 5, NULL, EXIT_FAULT, "it broke" } },
	{ .type = CKPTD_PART_TAKEN, .decided = { 5, false } },
	{ .type = CKPTD_DECIDED, .decided = { 5, true } },
	{ .type = CKPTD_REFUSED, .refused = { EXIT_DATA, "no" } },
	{ .type = CKPTD_LEFT, .decided = { 5, false } },
};

#define ATTACH (&samples[0])
#define SAVE (&samples[1])
#define SAMPLES (sizeof samples / sizeof samples[0])

static json_t *encoded(const struct ckptd_message *message)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	struct err err;
	if (ckptd_encode(message, &text, &size, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(strlen(text), size);
	json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(object);
	return object;
}

/* Whether the object is taken; one that is comes back as it was, and one that is not has its one
 * line. */
static bool is_taken(enum ckptd_type type, const json_t *object)
{
	AUTO_FREE char *text = json_dumps(object, JSON_REAL_PRECISION(17));
	struct ckptd_message message;
	struct err err = { .text = "" };
	if (ckptd_decode(type, text, strlen(text), &message, &err) < 0) {
		assert_int_equal(err.status, EXIT_DATA);
		assert_non_null(strstr(err.text, ckptd_type_name(type)));
		return false;
	}
	json_t *again = encoded(&message), *value;
	const char *name;
	json_object_foreach(again, name, value)
	{
		/* A whole number is as good a real one as any. */
		const json_t *was = json_object_get(object, name);
		if (json_is_real(value) && json_is_integer(was)
			&& json_number_value(was) == json_real_value(value))
			json_object_set(again, name, (json_t *)(uintptr_t)was);
	}
	if (!json_equal(again, object) && json_object_size(object) == json_object_size(again))
		fail_msg("%s came back as %s", text, json_dumps(again, 0));
	json_decref(again);
	ckptd_message_release(&message);
	return true;
}

/* Decodes the object, and releases it. */
static void decode(json_t *object, enum ckptd_type type, struct ckptd_message *message)
{
	AUTO_FREE char *text = json_dumps(object, 0);
	struct err err;
	json_decref(object);
	if (ckptd_decode(type, text, strlen(text), message, &err) < 0)
		fail_msg("%s", err.text);
}

static void messages_come_back(void **state)
{
	struct ckptd_message message;
	bool seen[CKPTD_TYPES] = { false };
	for (size_t i = 0; i < SAMPLES; i++) {
		json_t *object = encoded(&samples[i]);
		assert_true(is_taken(samples[i].type, object));
		/* What is not known is ignored. */
		json_object_set_new(object, "later", json_integer(1));
		assert_true(is_taken(samples[i].type, object));
		json_decref(object);
		seen[samples[i].type] = true;
	}
	for (int type = 1; type < CKPTD_TYPES; type++)
		assert_true(seen[type]);
	decode(encoded(ATTACH), CKPTD_ATTACH, &message);
	assert_true(message.attach.seed == UINT64_MAX);
	assert_null(message.attach.first);
	assert_string_equal(message.attach.path, "/a \"b\"\n");
	ckptd_message_release(&message);
	decode(encoded(SAVE), CKPTD_SAVE, &message);
	assert_string_equal(message.save.values, "{\"epoch\": 1}");
	assert_int_equal(message.save.tensors[1].offset, 142);
	assert_int_equal(message.save.tensors[2].offset, CKPTD_NO_OFFSET);
	assert_int_equal(message.save.tensors[3].box_dims, CKPTD_NO_SHAPE);
	assert_true(message.save.tensors[4].state);
	assert_int_equal(message.save.tensors[4].box.shape[0], 4);
	assert_int_equal(message.save.tensors[4].box.offset[0], 2);
	assert_int_equal(message.save.slices[0].offset[2], 4036);
	ckptd_message_release(&message);
}

/* Values that hardly any member may have. Each member is given each; what is taken has to come
 * back. */
static size_t try_values(enum ckptd_type type, json_t *root, json_t *object)
{
	static const char *const values[] = { "null", "true", "-1", "-2", "65536",
		"9223372036854775807", "1e300", "0.5", "\"\"", "\"x\"", "\"-1\"",
		"\"18446744073709551616\"", "\"01\"", "\"0123456789ABCDEF0123456789abcdef\"", "[]", "[1]",
		"[-1]", "[\"a\"]", "[1, 2, 3, 4, 5, 6, 7, 8, 9]", "[null]", "[0, 0, 1]", "{}" };
	size_t refused = 0;
	const char *name;
	json_t *value, *names = json_array();
	json_object_foreach(object, name, value) json_array_append_new(names, json_string(name));
	for (size_t n = 0; n < json_array_size(names); n++) {
		name = json_string_value(json_array_get(names, n));
		json_t *old = json_incref(json_object_get(object, name));
		json_object_del(object, name);
		assert_false(is_taken(type, root));
		for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
			json_object_set_new(object, name, json_loads(values[i], JSON_DECODE_ANY, NULL));
			refused += !is_taken(type, root);
		}
		json_object_set_new(object, name, old);
	}
	json_decref(names);
	return refused;
}

static void no_member_is_left_out_or_of_another_kind(void **state)
{
	size_t refused = 0;
	for (size_t i = 0; i < SAMPLES; i++) {
		json_t *object = encoded(&samples[i]);
		refused += try_values(samples[i].type, object, object);
		assert_true(is_taken(samples[i].type, object));
		if (&samples[i] == SAVE) {
			json_t *rows = json_object_get(object, "tensors");
			refused += try_values(CKPTD_SAVE, object, json_array_get(rows, 0));
			refused += try_values(CKPTD_SAVE, object, json_array_get(rows, 4));
			rows = json_object_get(object, "slices");
			refused += try_values(CKPTD_SAVE, object, json_array_get(rows, 0));
		}
		json_decref(object);
	}
	assert_true(refused > 1200);
}

/* The message with one thing changed, by which no member is wrong by itself. */
static json_t *changed(const struct ckptd_message *message, const char *path, const char *value)
{
	json_t *root = encoded(message), *at = root;
	char copy[100], *save, *name = strtok_r(strcpy(copy, path), ".", &save), *next;
	for (; (next = strtok_r(NULL, ".", &save)); name = next)
		at = json_is_array(at) ? json_array_get(at, (size_t)atoi(name)) : json_object_get(at, name);
	json_t *new = json_loads(value, JSON_DECODE_ANY, NULL);
	assert_non_null(new);
	if (json_is_array(at))
		json_array_set_new(at, (size_t)atoi(name), new);
	else
		json_object_set_new(at, name, new);
	return root;
}

static bool attach_is_taken(const char *path, const char *value)
{
	json_t *root = changed(ATTACH, path, value);
	bool taken = is_taken(CKPTD_ATTACH, root);
	json_decref(root);
	return taken;
}

/* By a service to which a client has attached so. */
static bool save_is_taken(const struct ckptd_attach *attach, const char *path, const char *value)
{
	json_t *root = changed(SAVE, path, value);
	struct ckptd_message message;
	struct err err;
	bool taken = is_taken(CKPTD_SAVE, root);
	if (!taken) {
		json_decref(root);
		return false;
	}
	decode(root, CKPTD_SAVE, &message);
	taken = ckptd_save_check(&message.save, attach, &err) == 0;
	if (!taken)
		assert_int_equal(err.status, EXIT_DATA);
	ckptd_message_release(&message);
	return taken;
}

static void what_does_not_fit_together_is_refused(void **state)
{
	static const char *const attach_changes[][2] = {
		{ "part", "2" },
		{ "part", "1" },
		{ "parts", "1" },
		{ "host", "null" },
		{ "secret", "null" },
		{ "first", "\"a:1:b\"" },
	};
	static const char *const save_changes[][2] = {
		{ "slot", "2" },
		{ "config", "null" },
		{ "numerics", "null" },
		{ "tensors.0.offset", "null" },
		{ "tensors.0.offset", "2" },
		{ "tensors.0.offset", "3960" },
		{ "tensors.0.offset", "9223372036854775804" },
		{ "tensors.0.writer", "2" },
		{ "tensors.0.shape", "[7, 1000]" },
		{ "tensors.0.shape", "[4611686018427387904, 4]" },
		{ "tensors.0.dtype", "\"F4\"" },
		{ "tensors.0.box_shape", "[7, 5]" },
		{ "tensors.0.state", "true" },
		{ "tensors.1.offset", "4091" },
		{ "tensors.3.offset", "4096" },
		{ "tensors.2.offset", "4084" },
		{ "tensors.4.state", "false" },
		{ "tensors.4.box_shape", "null" },
		{ "tensors.4.box_shape", "[4, 3, 1]" },
		{ "tensors.4.box_shape", "[3, 3]" },
		{ "tensors.4.box_offset", "null" },
		{ "tensors.4.box_offset", "[2, 1]" },
		{ "tensors.4.box_offset", "[9223372036854775807, 0]" },
		{ "tensors.4.offset", "4091" },
		{ "slices.0.tensor", "5" },
		{ "slices.0.tensor", "4" },
		{ "slices.0.tensor", "1" },
		{ "slices.0.first", "21" },
		{ "slices.0.count", "16" },
		{ "slices.0.count", "9223372036854775807" },
		{ "slices.0.first", "9223372036854775807" },
		{ "slices.0.writer", "2" },
		{ "slices.0.offsets", "null" },
		{ "slices.0.offsets.1", "2050" },
		{ "slices.0.offsets.2", "4040" },
		{ "tensors", "[]" },
	};
	static const char *const good[][2] = {
		{ "tensors.0.offset", "3956" },
		{ "tensors.2.offset", "4080" },
		{ "tensors.4.box_offset", "[0, 0]" },
		{ "slices.0.offsets.1", "2052" },
		{ "model", "null" },
		{ "values", "null" },
	};
	struct ckptd_attach attach = ATTACH->attach;
	for (size_t i = 0; i < sizeof attach_changes / sizeof attach_changes[0]; i++)
		if (attach_is_taken(attach_changes[i][0], attach_changes[i][1]))
			fail_msg("%s = %s was taken", attach_changes[i][0], attach_changes[i][1]);
	for (size_t i = 0; i < sizeof save_changes / sizeof save_changes[0]; i++)
		if (save_is_taken(&attach, save_changes[i][0], save_changes[i][1]))
			fail_msg("%s = %s was taken", save_changes[i][0], save_changes[i][1]);
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		if (!save_is_taken(&attach, good[i][0], good[i][1]))
			fail_msg("%s = %s was not taken", good[i][0], good[i][1]);
	/* Only one of several parts may have written its own before. */
	assert_true(save_is_taken(&attach, "slot", "-1"));
	attach.parts = 1;
	assert_false(save_is_taken(&attach, "slot", "-1"));
	attach = ATTACH->attach;
	attach.buffer_bytes = 4095;
	assert_false(save_is_taken(&attach, "slot", "1"));
}

static void no_json_is_refused(void **state)
{
	static const char *const texts[] = { "", "x", "[]", "1", "{\"step\": 1, \"step\": 1}",
		"{\"step\": 1} x", "{\"step\": \"\\u0000\"}", "{\"step\": 99999999999999999999}" };
	struct ckptd_message message;
	struct err err;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		assert_int_equal(ckptd_decode(CKPTD_PART_TAKEN, texts[i], strlen(texts[i]), &message, &err),
			-1);
	assert_int_equal(ckptd_decode(CKPTD_PART_TAKEN, "{\"step\": 1}\0", 12, &message, &err), -1);
	struct ckptd_message bad = { .type = CKPTD_REFUSED, .refused = { 1, "\xff" } };
	char *text;
	size_t size;
	assert_int_equal(ckptd_encode(&bad, &text, &size, &err), -1);
	AUTO_FREE char *large = malloc(CKPTD_PAYLOAD_MAX + 1u);
	memset(large, 'a', CKPTD_PAYLOAD_MAX);
	large[CKPTD_PAYLOAD_MAX] = '\0';
	bad.refused.text = large;
	assert_int_equal(ckptd_encode(&bad, &text, &size, &err), -1);
}

static void headers_are_looked_at(void **state)
{
	const struct ckptd_header good = { CKPTD_ATTACH, CKPTD_PAYLOAD_MAX, 3 };
	unsigned char bytes[CKPTD_HEADER_SIZE];
	struct ckptd_header header;
	struct err err;
	ckptd_header_encode(&good, bytes);
	assert_int_equal(ckptd_header_decode(bytes, &header, &err), 0);
	assert_int_equal(header.type, CKPTD_ATTACH);
	assert_int_equal(header.size, CKPTD_PAYLOAD_MAX);
	assert_int_equal(header.descriptors, 3);
	/* Every byte counts: no other value of it is the same header, and most are none. */
	for (int i = 0; i < CKPTD_HEADER_SIZE; i++)
		for (int bit = 0; bit < 8; bit++) {
			bytes[i] ^= (unsigned char)(1 << bit);
			bool taken = ckptd_header_decode(bytes, &header, &err) == 0;
			if (taken && (i < 6 || i > 13))
				fail_msg("bit %d of byte %d was not looked at", bit, i);
			if (taken && header.type == good.type && header.size == good.size
				&& header.descriptors == good.descriptors)
				fail_msg("bit %d of byte %d makes no difference", bit, i);
			bytes[i] ^= (unsigned char)(1 << bit);
		}
	bytes_put_le32(bytes + 8, CKPTD_PAYLOAD_MAX + 1);
	assert_int_equal(ckptd_header_decode(bytes, &header, &err), -1);
	ckptd_header_encode(&(struct ckptd_header) { CKPTD_HELLO, CKPTD_HELLO_MAX + 1, 0 }, bytes);
	assert_int_equal(ckptd_header_decode(bytes, &header, &err), -1);
	ckptd_header_encode(&(struct ckptd_header) { CKPTD_SAVE, 10, 1 }, bytes);
	assert_int_equal(ckptd_header_decode(bytes, &header, &err), -1);
	ckptd_header_encode(&(struct ckptd_header) { CKPTD_ATTACH, 10, 1 }, bytes);
	assert_int_equal(ckptd_header_decode(bytes, &header, &err), -1);
}

/* ---- connections ---- */

static void pair(struct ckptd_conn *a, struct ckptd_conn *b)
{
	int ends[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	ckptd_conn_open(a, ends[0]);
	ckptd_conn_open(b, ends[1]);
}

static void frames_come_in_pieces_and_in_heaps(void **state)
{
	struct ckptd_conn a, b, c, d;
	struct ckptd_message message;
	struct err err;
	char byte;
	pair(&a, &b);
	pair(&c, &d);
	for (size_t i = 1; i < SAMPLES; i++)
		assert_int_equal(ckptd_conn_send(&a, &samples[i], NULL, 0, &err), 0);
	/* Byte by byte from b over to c. */
	size_t next = 1;
	while (recv(b.fd, &byte, 1, MSG_DONTWAIT) == 1) {
		assert_int_equal(write(c.fd, &byte, 1), 1);
		int rc = ckptd_conn_receive(&d, &message, &err);
		assert_true(rc >= 0);
		if (rc == 0)
			continue;
		assert_int_equal(message.type, samples[next++].type);
		ckptd_message_release(&message);
	}
	assert_int_equal(next, SAMPLES);
	/* More than a socket holds. */
	AUTO_FREE char *text = calloc(1, 5 << 20);
	memset(text, 'a', (5 << 20) - 1);
	const struct ckptd_message large = { .type = CKPTD_REFUSED, .refused = { 1, text } };
	assert_int_equal(ckptd_conn_send(&c, &large, NULL, 0, &err), 0);
	assert_true(c.pending > 0);
	while (ckptd_conn_receive(&d, &message, &err) == 0)
		assert_int_equal(ckptd_conn_flush(&c, &err), 0);
	assert_string_equal(message.refused.text, text);
	ckptd_message_release(&message);
	ckptd_conn_close(&c);
	assert_int_equal(ckptd_conn_receive(&d, &message, &err), -1);
	assert_int_equal(err.status, EXIT_LOST);
	ckptd_conn_close(&a);
	ckptd_conn_close(&b);
	ckptd_conn_close(&d);
}

static int open_descriptors(void)
{
	int count = 0;
	for (int fd = 0; fd < 100; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void descriptors_travel_with_their_frame_only(void **state)
{
	struct ckptd_conn a, b;
	struct ckptd_message message;
	struct err err;
	int taken[CKPTD_DESCRIPTORS], before = open_descriptors();
	pair(&a, &b);
	const int given[] = { a.fd, b.fd, a.fd };
	assert_int_equal(ckptd_conn_send(&a, ATTACH, given, 3, &err), 0);
	assert_int_equal(ckptd_conn_receive(&b, &message, &err), 1);
	ckptd_message_release(&message);
	assert_int_equal(ckptd_conn_take(&b, taken), 3);
	assert_int_equal(open_descriptors(), before + 5);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fcntl(taken[i], F_GETFD), FD_CLOEXEC);
		close(taken[i]);
	}
	/* Those that nobody takes are closed. */
	assert_int_equal(ckptd_conn_send(&a, ATTACH, given, 2, &err), 0);
	assert_int_equal(ckptd_conn_receive(&b, &message, &err), 1);
	ckptd_message_release(&message);
	assert_int_equal(ckptd_conn_send(&a, &samples[1], NULL, 0, &err), 0);
	assert_int_equal(ckptd_conn_receive(&b, &message, &err), 1);
	ckptd_message_release(&message);
	assert_int_equal(open_descriptors(), before + 2);
	/* With a message that has none. */
	assert_int_equal(ckptd_conn_send(&a, &samples[1], given, 1, &err), 0);
	assert_int_equal(ckptd_conn_receive(&b, &message, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	ckptd_conn_close(&a);
	ckptd_conn_close(&b);
	assert_int_equal(open_descriptors(), before);
}

/* Raw bytes with descriptors that the header does not speak of. */
static void send_raw(int fd, const void *bytes, size_t size, int descriptor, int count)
{
	char control[CMSG_SPACE(sizeof(int) * 8)] = "";
	struct iovec piece = { (void *)(uintptr_t)bytes, size };
	struct msghdr message = { .msg_iov = &piece,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count) };
	struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
	*rights = (struct cmsghdr) { .cmsg_level = SOL_SOCKET,
		.cmsg_type = SCM_RIGHTS,
		.cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count) };
	for (int i = 0; i < count; i++)
		memcpy(CMSG_DATA(rights) + sizeof descriptor * (size_t)i, &descriptor, sizeof descriptor);
	assert_int_equal(sendmsg(fd, &message, 0), (ssize_t)size);
}

static void smuggled_descriptors_are_closed(void **state)
{
	const struct ckptd_header header = { CKPTD_PART_TAKEN, 11, 0 };
	unsigned char bytes[CKPTD_HEADER_SIZE + 11];
	struct ckptd_conn a, b;
	struct ckptd_message message;
	struct err err;
	int before = open_descriptors();
	ckptd_header_encode(&header, bytes);
	memcpy(bytes + CKPTD_HEADER_SIZE, "{\"step\": 1}", 11);
	/* Behind the first byte: the kernel drops them. */
	pair(&a, &b);
	assert_int_equal(write(a.fd, bytes, 1), 1);
	assert_int_equal(ckptd_conn_receive(&b, &message, &err), 0);
	send_raw(a.fd, bytes + 1, sizeof bytes - 1, a.fd, 3);
	assert_int_equal(ckptd_conn_receive(&b, &message, &err), 1);
	ckptd_message_release(&message);
	assert_int_equal(open_descriptors(), before + 2);
	/* More of them than any frame has. */
	send_raw(a.fd, bytes, sizeof bytes, a.fd, 8);
	assert_int_equal(ckptd_conn_receive(&b, &message, &err), -1);
	ckptd_conn_close(&a);
	ckptd_conn_close(&b);
	assert_int_equal(open_descriptors(), before);
}

static void addresses_are_taken_apart(void **state)
{
	static const char *const bad[] = { "", "a", "h:1", ":1:" TOKEN, "h:0:" TOKEN, "h:65536:" TOKEN,
		"h:x:" TOKEN, "h::" TOKEN, "h:1x:" TOKEN, "h:1:" TOKEN "0", "h:1:", "1:" TOKEN,
		"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx:1:" TOKEN };
	struct ckptd_address address;
	struct sockaddr_storage out;
	socklen_t size;
	struct err err;
	assert_int_equal(ckptd_address_parse("fe80::1:5:" TOKEN, &address, &err), 0);
	assert_string_equal(address.host, "fe80::1");
	assert_int_equal(address.port, 5);
	assert_string_equal(address.secret, TOKEN);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		if (ckptd_address_parse(bad[i], &address, &err) == 0)
			fail_msg("%s was taken", bad[i]);
	assert_int_equal(ckptd_tcp_address("127.0.0.1", 1, &out, &size, &err), 0);
	assert_int_equal(ckptd_tcp_address("localhost", 1, &out, &size, &err), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_come_back),
		cmocka_unit_test(no_member_is_left_out_or_of_another_kind),
		cmocka_unit_test(what_does_not_fit_together_is_refused),
		cmocka_unit_test(no_json_is_refused),
		cmocka_unit_test(headers_are_looked_at),
		cmocka_unit_test(frames_come_in_pieces_and_in_heaps),
		cmocka_unit_test(descriptors_travel_with_their_frame_only),
		cmocka_unit_test(smuggled_descriptors_are_closed),
		cmocka_unit_test(addresses_are_taken_apart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
