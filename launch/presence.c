/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank tells a few others, chosen at random, which ranks it knows to have come, and merges
 * what they know. No rank leads, so it does not matter which one is missing. Knowledge only
 * grows. */
#include "config.h"

#include "launch/presence.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/listen.h"
#include "common/node_address.h"
#include "common/siphash.h"
#include "common/thread.h"

#define CALLS 3          /* ranks called in a round */
#define FIRST_PAUSE 0.05 /* seconds between two rounds, in a world of up to PAUSE_WORLD ranks */
#define LONGEST_PAUSE 0.5
#define PAUSE_GROWTH 1.25
#define PAUSE_WORLD 128
#define TAKE_MAX 256      /* datagrams, before the clock is read again */
#define ADDRESSES 4       /* of one node name */
#define RESOLVE_AGAIN 5.0 /* seconds after a name had no address */
#define MAGIC "MRC1"
#define HEAD_SIZE 24
#define TAG_SIZE 8
#define MESSAGE_MAX (HEAD_SIZE + PRESENCE_WORLD_MAX / 8 + TAG_SIZE)

struct node {
	char *name;
	struct sockaddr_storage addresses[ADDRESSES];
	int count;
	double resolve_at; /* clock_now() */
};

/* Where a rank listens. */
struct seat {
	int node, port;
};

struct presence {
	int rank, world_size;
	struct run_key run;
	struct node *nodes;
	int node_count;
	struct seat *seats;
	size_t message_size;
	int fd, wake, family;
	unsigned random;

	pthread_mutex_t lock; /* for the fields below */
	int references;       /* the owner's and the thread's */
	bool over, news;
	uint32_t fence; /* the last fence that this rank has reached, plus 1; 0: none */
	uint32_t *come; /* the same of each rank, as far as known */
};

/* ---- the message ---- */

static size_t write_message(const struct presence *roll, uint32_t fence, bool call,
	unsigned char *out)
{
	size_t tag_at = roll->message_size - TAG_SIZE;
	memset(out, 0, roll->message_size);
	memcpy(out, MAGIC, 4);
	bytes_put_le64(out + 4, roll->run.number);
	bytes_put_le32(out + 12, (uint32_t)roll->rank);
	bytes_put_le32(out + 16, fence);
	bytes_put_le32(out + 20, call);
	for (int rank = 0; rank < roll->world_size; rank++)
		if (roll->come[rank] > fence)
			out[HEAD_SIZE + rank / 8] |= (unsigned char)(1 << rank % 8);
	if (roll->run.keyed)
		bytes_put_le64(out + tag_at, siphash(roll->run.key, out, tag_at));
	return roll->message_size;
}

/* Whether these bytes are a message of this run. */
static bool is_message(const struct presence *roll, const unsigned char *message, size_t size)
{
	size_t tag_at = roll->message_size - TAG_SIZE;
	int extra = roll->world_size % 8;
	return size == roll->message_size && memcmp(message, MAGIC, 4) == 0
		&& bytes_le64(message + 4) == roll->run.number
		&& bytes_le32(message + 12) < (uint32_t)roll->world_size
		&& bytes_le32(message + 16) < UINT32_MAX && bytes_le32(message + 20) <= 1
		&& (extra == 0 || message[tag_at - 1] >> extra == 0)
		&& bytes_le64(message + tag_at)
		== (roll->run.keyed ? siphash(roll->run.key, message, tag_at) : 0);
}

/* ---- addresses ---- */

/* Called by the thread alone: the name service may take as long as it likes. */
static void resolve(struct presence *roll, struct node *node)
{
	const struct addrinfo hints = { .ai_family = roll->family,
		.ai_socktype = SOCK_DGRAM,
		.ai_flags = roll->family == AF_INET6 ? AI_V4MAPPED | AI_ALL : 0 };
	struct addrinfo *found = NULL;
	if (node->count > 0 || clock_now() < node->resolve_at)
		return;
	/* The node's own name may resolve to another address here than on other nodes. */
	bool own = node == &roll->nodes[roll->seats[roll->rank].node];
	if (node_address(own ? "127.0.0.1" : node->name, NULL, &hints, &found) == 0)
		for (struct addrinfo *at = found; at && node->count < ADDRESSES; at = at->ai_next)
			memcpy(&node->addresses[node->count++], at->ai_addr, at->ai_addrlen);
	if (found)
		freeaddrinfo(found);
	node->resolve_at = clock_now() + RESOLVE_AGAIN;
}

/* The port is at the same offset for both families. */
static in_port_t *port_of(struct sockaddr_storage *address)
{
	return &((struct sockaddr_in *)(void *)address)->sin_port;
}

static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
	const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;
	if (a->ss_family != b->ss_family)
		return false;
	return a->ss_family == AF_INET6 ? IN6_ARE_ADDR_EQUAL(&a6->sin6_addr, &b6->sin6_addr)
									: a4->sin_addr.s_addr == b4->sin_addr.s_addr;
}

/* Without a key the source address authenticates the sender: nobody else can have the port of a
 * rank that is running. */
static bool comes_from(struct presence *roll, uint32_t rank, struct sockaddr_storage *source)
{
	const struct seat *seat = &roll->seats[rank];
	struct node *node = &roll->nodes[seat->node];
	/* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): recvfrom fills the address */
	if (ntohs(*port_of(source)) != seat->port)
		return false;
	resolve(roll, node);
	for (int i = 0; i < node->count; i++)
		if (same_host(&node->addresses[i], source))
			return true;
	return false;
}

static void send_message(struct presence *roll, const struct sockaddr_storage *to,
	const unsigned char *message)
{
	socklen_t size =
		roll->family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	/* The next datagram makes up for a lost one. */
	(void)!sendto(roll->fd, message, roll->message_size, MSG_DONTWAIT | MSG_NOSIGNAL,
		(const struct sockaddr *)to, size);
}

/* ---- the thread ---- */

/* Takes over the ranks that a message names. */
static void merge(struct presence *roll, const unsigned char *message)
{
	uint32_t fence = bytes_le32(message + 16);
	for (int rank = 0; rank < roll->world_size; rank++)
		if (message[HEAD_SIZE + rank / 8] >> rank % 8 & 1 && roll->come[rank] <= fence) {
			roll->come[rank] = fence + 1;
			roll->news = true;
		}
}

static void take_message(struct presence *roll, unsigned char *message, size_t size,
	struct sockaddr_storage *source)
{
	if (!is_message(roll, message, size))
		return;
	if (!roll->run.keyed && !comes_from(roll, bytes_le32(message + 12), source))
		return;
	bool call = bytes_le32(message + 20);
	pthread_mutex_lock(&roll->lock);
	merge(roll, message);
	if (call)
		write_message(roll, bytes_le32(message + 16), false, message);
	pthread_mutex_unlock(&roll->lock);
	if (call)
		send_message(roll, source, message);
}

static void take_messages(struct presence *roll)
{
	unsigned char message[MESSAGE_MAX];
	for (int i = 0; i < TAKE_MAX; i++) {
		struct sockaddr_storage source = { 0 };
		socklen_t length = sizeof source;
		ssize_t size = recvfrom(roll->fd, message, sizeof message, MSG_DONTWAIT | MSG_TRUNC,
			(struct sockaddr *)&source, &length);
		if (size < 0 && errno != EINTR)
			return;
		if (size > 0)
			take_message(roll, message, (size_t)size, &source);
	}
}

static void call_rank(struct presence *roll, int rank, const unsigned char *message)
{
	struct node *node = &roll->nodes[roll->seats[rank].node];
	resolve(roll, node);
	if (node->count == 0)
		return;
	struct sockaddr_storage to = node->addresses[rand_r(&roll->random) % node->count];
	*port_of(&to) = htons((uint16_t)roll->seats[rank].port);
	send_message(roll, &to, message);
}

static bool all_have_come(const struct presence *roll)
{
	for (int rank = 0; rank < roll->world_size; rank++)
		if (roll->come[rank] < roll->fence)
			return false;
	return true;
}

static void call_some(struct presence *roll)
{
	unsigned char message[MESSAGE_MAX];
	pthread_mutex_lock(&roll->lock);
	bool wanted = roll->fence > 0 && !all_have_come(roll);
	if (wanted)
		write_message(roll, roll->fence - 1, true, message);
	pthread_mutex_unlock(&roll->lock);
	for (int i = 0; i < CALLS && wanted && roll->world_size > 1; i++)
		call_rank(roll,
			(roll->rank + 1 + rand_r(&roll->random) % (roll->world_size - 1)) % roll->world_size,
			message);
}

/* Returns whether this is over. *news: whether something was learnt since the last call. */
static bool look(struct presence *roll, bool *news)
{
	pthread_mutex_lock(&roll->lock);
	bool over = roll->over;
	*news = roll->news;
	roll->news = false;
	pthread_mutex_unlock(&roll->lock);
	return over;
}

static void drop(struct presence *roll);

static void *run_thread(void *arg)
{
	struct presence *roll = arg;
	struct pollfd fds[] = { { .fd = roll->fd, .events = POLLIN },
		{ .fd = roll->wake, .events = POLLIN } };
	double scale = roll->world_size > PAUSE_WORLD ? (double)roll->world_size / PAUSE_WORLD : 1,
		   pause = FIRST_PAUSE * scale;
	struct deadline next = deadline_in(0);
	uint64_t count;
	bool news;
	while (!look(roll, &news)) {
		if (news && pause > FIRST_PAUSE * scale) {
			pause = FIRST_PAUSE * scale;
			next = deadline_in(pause);
		}
		if (deadline_passed(next)) {
			call_some(roll);
			next = deadline_in(pause);
			pause = pause * PAUSE_GROWTH < LONGEST_PAUSE * scale ? pause * PAUSE_GROWTH
																 : LONGEST_PAUSE * scale;
		}
		poll(fds, 2, (int)(deadline_left(next) * 1000) + 1);
		eventfd_read(roll->wake, &count);
		take_messages(roll);
	}
	drop(roll);
	return NULL;
}

/* ---- begin and end ---- */

static void release(struct presence *roll)
{
	for (int i = 0; i < roll->node_count; i++)
		free(roll->nodes[i].name);
	if (roll->fd >= 0)
		close(roll->fd);
	if (roll->wake >= 0)
		close(roll->wake);
	pthread_mutex_destroy(&roll->lock);
	free(roll->nodes);
	free(roll->seats);
	free(roll->come);
	free(roll);
}

static void drop(struct presence *roll)
{
	pthread_mutex_lock(&roll->lock);
	int left = --roll->references;
	pthread_mutex_unlock(&roll->lock);
	if (left == 0)
		release(roll);
}

/* The number of a node; a new name gets the next number. -1: out of memory. Neighbouring ranks
 * mostly share a node, so the search runs backwards. */
static int node_number(struct presence *roll, const char *name)
{
	for (int i = roll->node_count - 1; i >= 0; i--)
		if (strcmp(roll->nodes[i].name, name) == 0)
			return i;
	char *copy = strdup(name);
	if (!copy)
		return -1;
	roll->nodes[roll->node_count].name = copy;
	return roll->node_count++;
}

/* Sets each rank's node, and its port by its place on that node. */
static int seat_ranks(struct presence *roll, const struct presence_plan *plan)
{
	AUTO_FREE int *taken = calloc((size_t)plan->world_size, sizeof *taken);
	if (!taken || !roll->nodes || !roll->seats || !roll->come)
		return -1;
	for (int rank = 0; rank < plan->world_size; rank++) {
		int node = node_number(roll, plan->nodes[rank]);
		if (node < 0)
			return -1;
		roll->seats[rank] = (struct seat) { node, run_port(plan->run.number, taken[node]++) };
	}
	return 0;
}

static int open_socket(struct presence *roll, struct err *err)
{
	int got, port = roll->seats[roll->rank].port;
	roll->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	roll->fd = socket_any(SOCK_DGRAM, port, &got);
	/* With a key a rank may send from any port, and is answered there. */
	if (roll->fd < 0 && roll->run.keyed)
		roll->fd = socket_any(SOCK_DGRAM, 0, &got);
	if (roll->wake < 0 || roll->fd < 0
		|| getsockopt(roll->fd, SOL_SOCKET, SO_DOMAIN, &roll->family,
			   &(socklen_t) { sizeof roll->family })
			< 0)
		return err_set(err,
			"rendezvous: couldn't call the roll: couldn't listen on port %d (UDP): %m", port);
	return 0;
}

static int start_thread(struct presence *roll, struct err *err)
{
	roll->references++;
	int error = thread_start(NULL, run_thread, roll);
	return error
		? err_set(err, "rendezvous: couldn't call the roll: no thread: %s", strerror(error))
		: 0;
}

static struct presence *allocate(const struct presence_plan *plan)
{
	struct presence *roll = calloc(1, sizeof *roll);
	if (!roll)
		return NULL;
	const size_t count = (size_t)plan->world_size;
	*roll = (struct presence) { .rank = plan->rank,
		.world_size = plan->world_size,
		.run = plan->run,
		.references = 1,
		.fd = -1,
		.wake = -1,
		.message_size = HEAD_SIZE + (count + 7) / 8 + TAG_SIZE,
		.random = (unsigned)plan->rank + (unsigned)getpid(),
		.nodes = calloc(count, sizeof *roll->nodes),
		.seats = calloc(count, sizeof *roll->seats),
		.come = calloc(count, sizeof *roll->come) };
	pthread_mutex_init(&roll->lock, NULL);
	if (seat_ranks(roll, plan) == 0)
		return roll;
	release(roll);
	return NULL;
}

struct presence *presence_begin(const struct presence_plan *plan, struct err *err)
{
	if (plan->world_size > PRESENCE_WORLD_MAX) {
		err_set(err, "rendezvous: couldn't call the roll of %d ranks: more than %d",
			plan->world_size, PRESENCE_WORLD_MAX);
		return NULL;
	}
	struct presence *roll = allocate(plan);
	if (!roll) {
		err_set(err, "rendezvous: no memory for the roll of %d ranks", plan->world_size);
		return NULL;
	}
	if (open_socket(roll, err) == 0 && start_thread(roll, err) == 0)
		return roll;
	release(roll);
	return NULL;
}

void presence_reach(struct presence *roll, uint32_t fence)
{
	if (!roll)
		return;
	pthread_mutex_lock(&roll->lock);
	roll->come[roll->rank] = roll->fence = fence + 1;
	roll->news = true;
	pthread_mutex_unlock(&roll->lock);
	eventfd_write(roll->wake, 1);
}

int presence_mark(struct presence *roll, uint32_t fence, bool *seen)
{
	int count = 0;
	if (!roll)
		return 0;
	pthread_mutex_lock(&roll->lock);
	for (int rank = 0; rank < roll->world_size; rank++)
		if (roll->come[rank] > fence) {
			seen[rank] = true;
			count++;
		}
	pthread_mutex_unlock(&roll->lock);
	return count;
}

bool presence_is_keyed(const struct presence *roll)
{
	return roll && roll->run.keyed;
}

int presence_port(const struct presence *roll, int rank)
{
	return roll->seats[rank].port;
}

void presence_end(struct presence *roll)
{
	if (!roll)
		return;
	pthread_mutex_lock(&roll->lock);
	roll->over = true;
	pthread_mutex_unlock(&roll->lock);
	eventfd_write(roll->wake, 1);
	drop(roll);
}
