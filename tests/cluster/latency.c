/* SPDX-License-Identifier: Apache-2.0 */
/* What a network does to packets, for kernels without netem: latency, loss and reordering of what a
 * network namespace receives. The kernel hands over each packet (netfilter's queue 0) and keeps it
 * until it is told to let it in, or to drop it.
 *
 *     latency LATENCY LOSS REORDER    microseconds, and two shares of a million packets
 *
 * A packet that TCP hands over in one piece (GSO) counts as the packets that it becomes on a wire.
 * One that is reordered takes half as long again, and later packets overtake it. Kill the program
 * to end it: the kernel then drops what comes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <libnetfilter_queue/libnetfilter_queue.h>

#define HEADER 40         /* of IPv6, the longer one */
#define SEGMENT 1448      /* bytes of TCP in a packet of Ethernet */
#define BUFFER (64 << 20) /* of the netlink socket */
#define PACKETS_MAX 65536 /* what the kernel keeps at most */

struct packet {
	uint64_t due; /* nanoseconds of CLOCK_MONOTONIC */
	uint32_t id;
};

static struct {
	uint64_t latency;     /* nanoseconds */
	double loss, reorder; /* of a packet */
	unsigned short random[3];
	struct nfq_q_handle *queue;
	struct packet heap[PACKETS_MAX + 1]; /* from 1: the earliest */
	size_t count;
} net;

static uint64_t now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

/* Of two that are due at the same time the one that came first. */
static bool before(const struct packet *a, const struct packet *b)
{
	return a->due != b->due ? a->due < b->due : (int32_t)(a->id - b->id) < 0;
}

static void add(struct packet packet)
{
	size_t at = ++net.count;
	for (; at > 1 && before(&packet, &net.heap[at / 2]); at /= 2)
		net.heap[at] = net.heap[at / 2];
	net.heap[at] = packet;
}

static struct packet take_first(void)
{
	struct packet first = net.heap[1], last = net.heap[net.count--];
	size_t at = 1, child;
	for (; (child = 2 * at) <= net.count; at = child) {
		child += child < net.count && before(&net.heap[child + 1], &net.heap[child]);
		if (!before(&net.heap[child], &last))
			break;
		net.heap[at] = net.heap[child];
	}
	net.heap[at] = last;
	return first;
}

/* How many packets of a wire a packet of IP is. */
static int segments(const unsigned char *ip, int size)
{
	int bytes = size < HEADER ? 0 : ip[0] >> 4 == 4 ? ip[2] << 8 | ip[3] : ip[4] << 8 | ip[5];
	return bytes / SEGMENT + 1;
}

static bool happens(double share, int times)
{
	for (int i = 0; i < times && share > 0; i++)
		if (erand48(net.random) < share)
			return true;
	return false;
}

static int take_in(struct nfq_q_handle *queue, struct nfgenmsg *message, struct nfq_data *data,
	void *arg)
{
	unsigned char *ip = NULL;
	struct nfqnl_msg_packet_hdr *head = nfq_get_msg_packet_hdr(data);
	int size = nfq_get_payload(data, &ip);
	(void)message;
	(void)arg;
	if (!head)
		return 0;
	uint32_t id = ntohl(head->packet_id);
	if (net.count == PACKETS_MAX || happens(net.loss, segments(ip, size)))
		return nfq_set_verdict(queue, id, NF_DROP, 0, NULL);
	add((struct packet) { now() + net.latency + (happens(net.reorder, 1) ? net.latency / 2 : 0),
		id });
	return 0;
}

static void let_in_what_is_due(void)
{
	while (net.count > 0 && net.heap[1].due <= now())
		nfq_set_verdict(net.queue, take_first().id, NF_ACCEPT, 0, NULL);
}

static void await(int fd)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	uint64_t at = now(), left = net.count == 0 || net.heap[1].due <= at ? 0 : net.heap[1].due - at;
	struct timespec limit = { (time_t)(left / 1000000000u), (long)(left % 1000000000u) };
	ppoll(&wait, 1, net.count > 0 ? &limit : NULL, NULL);
}

static void run(struct nfq_handle *handle)
{
	static char buffer[1 << 16];
	int fd = nfq_fd(handle);
	for (;;) {
		await(fd);
		ssize_t got;
		while ((got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT)) > 0)
			nfq_handle_packet(handle, buffer, (int)got);
		let_in_what_is_due();
	}
}

static struct nfq_handle *open_queue(void)
{
	struct nfq_handle *handle = nfq_open();
	if (!handle || !(net.queue = nfq_create_queue(handle, 0, take_in, NULL))
		|| nfq_set_mode(net.queue, NFQNL_COPY_PACKET, HEADER) < 0
		|| nfq_set_queue_maxlen(net.queue, PACKETS_MAX) < 0
		|| nfq_set_queue_flags(net.queue, NFQA_CFG_F_GSO, NFQA_CFG_F_GSO) < 0)
		return NULL;
	setsockopt(nfq_fd(handle), SOL_SOCKET, SO_RCVBUFFORCE, &(int) { BUFFER }, sizeof(int));
	setsockopt(nfq_fd(handle), SOL_NETLINK, NETLINK_NO_ENOBUFS, &(int) { 1 }, sizeof(int));
	return handle;
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: latency LATENCY LOSS REORDER\n");
		return 2;
	}
	net.latency = strtoull(argv[1], NULL, 10) * 1000;
	net.loss = strtod(argv[2], NULL) / 1e6;
	net.reorder = strtod(argv[3], NULL) / 1e6;
	net.random[0] = (unsigned short)getpid();
	struct nfq_handle *handle = open_queue();
	if (!handle) {
		fprintf(stderr, "latency: couldn't have the kernel's packets (queue 0 of netfilter): %s\n",
			strerror(errno));
		return 1;
	}
	/* To be late under load would be a slower network. */
	prctl(PR_SET_TIMERSLACK, 1);
	sched_setscheduler(0, SCHED_FIFO, &(struct sched_param) { .sched_priority = 1 });
	printf("ready\n");
	fflush(stdout);
	run(handle);
}
