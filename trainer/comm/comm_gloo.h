/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the communicator over Gloo share: comm_gloo.cc, which talks,
 * comm_gloo_connect.cc, which makes the connections, and comm_gloo_peers.cc, which knows who is
 * gone. The only C++, since Gloo's interface is; nothing of it leaves them. */
#ifndef MUSTER_COMM_GLOO_H
#define MUSTER_COMM_GLOO_H

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "trainer/comm/comm_provider.h"
}

namespace muster_gloo
{

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
using Lock = std::unique_lock<std::mutex>;

constexpr std::chrono::milliseconds FOREVER = std::chrono::hours(10000);
enum Slot : uint64_t { SLOT_DATA = 1, SLOT_GOODBYE };

/* What a rank says when it leaves. */
struct Goodbye {
	int32_t failed; /* 0: it has finished */
	char why[700];
	double now;                        /* of its clock */
	unsigned char flight[FLIGHT_SIZE]; /* where it stands */
	int32_t said;                      /* 1: this one has come */
};

enum class Peer { ALIVE, FINISHED, FAILED };

/* One transfer: a buffer of Gloo's and how many of the chunks that were posted it has yet to see.
 */
struct Flight {
	Buffer buffer;
	int peer;
	bool send, sum;
	size_t chunks;
};

struct Exchange {
	std::vector<Flight> flights;
	std::string broken; /* why it couldn't even begin */
};

/* A context whose connections are made by trainer/comm/comm_links.h. */
class Mesh : public gloo::Context
{
  public:
	Mesh(int rank, int size);

	/* The connection with a peer, which is Gloo's from now on. */
	void adopt(int peer, int fd);

	/* Whether its end was seen. */
	bool is_closed(int peer);
};

struct State {
	int rank = 0, size = 1;
	struct comm_events events = {};
	std::shared_ptr<Mesh> mesh;
	std::vector<std::string> names; /* "rank 3 on node7" */

	std::mutex lock; /* of the fields below; never held while Gloo is called, but to abort a wait */
	std::condition_variable changed;
	std::vector<Peer> peers;
	std::string told; /* the first reason heard from a peer that gave up */
	gloo::transport::UnboundBuffer *waiting =
		nullptr; /* what the communicator's thread waits for */
	bool waiting_send = false, interrupted = false;

	std::thread hearer;
	std::atomic<bool> deaf { false }; /* the hearer is to end */
	std::vector<Goodbye> heard_words; /* by rank */
	Buffer heard;

	std::once_flag said;
	Goodbye words = {};
	Buffer saying;
	std::list<Exchange>
		exchanges; /* begun; what has failed is kept until the connections are closed */
};

/* What Gloo says, without the place in its source. */
std::string reason_of(const std::exception &e);

/* Connects to all other ranks, within the rendezvous' deadline; fills in their names. Status
 * EXIT_LOST names who is missing. */
int connect_all(State *s, const struct ident *ident, struct rdzv *rdzv, struct err *err);

/* Begins to watch the peers, once all are connected. A goodbye with a reason is told by the `lost`
 * event, and interrupts. */
void watch_peers(State *s);

/* Ends the wait that is under way, and those that follow. From any thread. */
void interrupt(State *s);

/* The ranks whose connection is closed. */
std::vector<int> closed_peers(State *s);

/* Of the closed ones, those that had not finished, with the first reason given in a goodbye; ""
 * where there is none. */
std::string blame(State *s, const std::vector<int> &closed);

/* A connection was closed under an operation: by whom, if that can be told, else `otherwise`. */
std::string explain_closed(State *s, const std::string &otherwise);

/* Tells all peers, once. `why` NULL: finished. */
void say_goodbye(State *s, const char *why, const unsigned char *flight);

/* Where a rank stood when it said goodbye, and its clock. False where it has not. */
bool hear_of(State *s, int rank, unsigned char *flight, double *now);

/* Waits until every peer has left as well or is gone: then nobody needs this rank any more. False
 * when not all have. */
bool linger_on(State *s, std::chrono::milliseconds limit);

} // namespace muster_gloo

#endif
