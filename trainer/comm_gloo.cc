/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator over Gloo's TCP transport: a connection between any two ranks, and unbound buffers on them.
 *
 * What Gloo (2022-05) does not do, and this file does:
 *  - A wait that times out closes every connection, so waits here have no timeout; other threads abort them.
 *  - Its all-reduce can't be aborted at all, so comm_op.c has one over exchange.
 *  - It does not tell who is gone, and why: comm_gloo_peers.cc does. */
#include "trainer/comm_gloo.h"

#include <gloo/common/error.h>

#include <algorithm>

namespace {

using gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;
using namespace muster_gloo;

constexpr milliseconds FAILED_LINGER(1000), ORDERLY_LINGER(5000);
constexpr size_t CHUNK = 1 << 20; /* what counts as progress */

void gloo_interrupt(void *state)
{
	interrupt(static_cast<State *>(state));
}

/* ---- operations ---- */

/* One transfer: a buffer of Gloo's and how many chunks it has yet to see. */
struct Flight {
	Buffer buffer;
	int peer;
	bool send;
	size_t chunks;
};

/* Waits for one chunk. False when interrupted; throws when the connection is closed. */
bool wait_chunk(State *s, const Flight &flight)
{
	{
		Lock hold(s->lock);
		if (s->interrupted)
			return false;
		s->waiting = flight.buffer.get();
		s->waiting_send = flight.send;
	}
	struct Clear {
		State *s;
		~Clear()
		{
			Lock hold(s->lock);
			s->waiting = nullptr;
		}
	} clear{s};
	return flight.send ? flight.buffer->waitSend(nullptr, FOREVER) : flight.buffer->waitRecv(nullptr, FOREVER);
}

/* After an interrupt: whether a transfer is complete. A helper aborts each wait; a complete one does not wait. */
bool is_complete(Flight &flight)
{
	bool complete = false;

	for (int attempt = 0; attempt < 2 && !complete; attempt++) {
		std::atomic<bool> over{false};
		std::thread helper([&] {
			while (!over) {
				std::this_thread::sleep_for(milliseconds(2));
				if (!over)
					flight.send ? flight.buffer->abortWaitSend() : flight.buffer->abortWaitRecv();
			}
		});
		try {
			complete = true;
			while (flight.chunks > 0 && complete) {
				complete = flight.send ? flight.buffer->waitSend(nullptr, FOREVER) :
					flight.buffer->waitRecv(nullptr, FOREVER);
				if (complete)
					flight.chunks--;
			}
		} catch (const std::exception &) {
			complete = false;
			attempt = 2;
		}
		over = true;
		helper.join();
	}
	return complete;
}

/* "waiting for rank 2 on node7, rank 3 on node8" */
std::string missing(State *s, std::vector<Flight> &flights)
{
	std::vector<bool> named(static_cast<size_t>(s->size));
	std::string text;

	for (auto &flight : flights) {
		auto peer = static_cast<size_t>(flight.peer);
		if (named[peer] || is_complete(flight))
			continue;
		named[peer] = true;
		text += (text.empty() ? "waiting for " : ", ") + s->names[peer];
	}
	return text.empty() ? "all transfers complete" : text;
}

void post(State *s, const struct comm_transfer *transfers, int count, bool send, std::vector<Flight> &flights)
{
	for (int i = 0; i < count; i++) {
		const auto &t = transfers[i];
		if (send == (t.receive != 0))
			continue;
		flights.push_back({s->mesh->createUnboundBuffer(t.buffer, t.bytes), t.peer, send, 0});
		Flight &flight = flights.back();
		for (size_t at = 0; at < t.bytes; at += CHUNK) {
			size_t bytes = std::min(CHUNK, t.bytes - at);
			if (send)
				flight.buffer->send(t.peer, SLOT_DATA, at, bytes);
			else
				flight.buffer->recv(t.peer, SLOT_DATA, at, bytes);
			flight.chunks++;
		}
	}
}

/* False when interrupted. */
bool wait_all(State *s, std::vector<Flight> &flights)
{
	for (auto &flight : flights)
		for (; flight.chunks > 0; flight.chunks--) {
			if (!wait_chunk(s, flight))
				return false;
			s->events.progress(s->events.arg);
		}
	return true;
}

int gloo_exchange(void *state, const struct comm_transfer *transfers, int count, struct err *err)
{
	auto s = static_cast<State *>(state);
	std::vector<Flight> flights;
	std::string why;

	flights.reserve(static_cast<size_t>(count));
	try {
		post(s, transfers, count, false, flights);
		post(s, transfers, count, true, flights);
		if (wait_all(s, flights))
			return 0;
		why = missing(s, flights);
	} catch (const std::exception &e) {
		why = explain_closed(s, reason_of(e));
	}
	for (auto &flight : flights)
		s->wreck.push_back(std::move(flight.buffer));
	return err_fail(err, EXIT_LOST, "%s", why.c_str());
}

/* ---- ways out ---- */

int gloo_check(void *state, struct err *err)
{
	auto s = static_cast<State *>(state);
	auto closed = closed_peers(s);

	if (closed.empty())
		return 0;
	std::string lost = blame(s, closed);
	return lost.empty() ? 0 : err_fail(err, EXIT_LOST, "%s", lost.c_str());
}

void gloo_leave(void *state, const char *why, const unsigned char *standing)
{
	auto s = static_cast<State *>(state);

	say_goodbye(s, why, standing);
	bool alone = linger(s, why ? FAILED_LINGER : ORDERLY_LINGER);
	s->deaf = true;
	s->heard->abortWaitRecv();
	if (s->hearer.joinable())
		s->hearer.join();
	/* A hard close, which drops what is not sent yet. Otherwise the end of `mesh` closes them, softly. */
	if (why || alone)
		s->mesh->closeConnections();
	s->wreck.clear();
}

bool gloo_said(void *state, int rank, unsigned char *standing, double *now)
{
	return hear_of(static_cast<State *>(state), rank, standing, now);
}

void gloo_close(void *state)
{
	delete static_cast<State *>(state);
}

const char *gloo_peer(void *state, int rank)
{
	return static_cast<State *>(state)->names[static_cast<size_t>(rank)].c_str();
}

/* ---- opening ---- */

int open_state(State *s, const struct ident *ident, struct rdzv *rdzv, struct err *err)
{
	s->mesh = std::make_shared<Mesh>(s->rank, s->size);
	s->peers.assign(static_cast<size_t>(s->size), Peer::ALIVE);
	s->death_bytes.assign(static_cast<size_t>(s->size), 0);
	for (int rank = 0; rank < s->size; rank++)
		s->names.push_back("rank " + std::to_string(rank));
	if (connect_all(s, ident, rdzv, err) < 0)
		return -1;
	watch_peers(s);
	return 0;
}

void *gloo_open(const struct ident *ident, struct rdzv *rdzv, const struct comm_events *events, struct err *err)
{
	State *s = nullptr;

	try {
		s = new State;
		s->rank = ident->rank;
		s->size = ident->world_size;
		s->events = *events;
		if (open_state(s, ident, rdzv, err) == 0)
			return s;
	} catch (const std::exception &e) {
		err_set(err, "comm: couldn't start Gloo: %s", reason_of(e).c_str());
	}
	delete s;
	return nullptr;
}

} // namespace

extern "C" const struct comm_provider comm_gloo = {
	"gloo", gloo_open, gloo_exchange, gloo_interrupt, gloo_check, gloo_leave, gloo_said, gloo_close,
	gloo_peer,
};
