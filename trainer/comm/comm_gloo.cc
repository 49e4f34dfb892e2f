/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator over Gloo's TCP transport: a connection between any two ranks, and unbound
 * buffers on them.
 *
 * What Gloo (2022-05) does not do, and this file does:
 *  - A wait that times out closes every connection, so waits here have no timeout; other threads
 * abort them.
 *  - Its all-reduce can't be aborted at all, so comm_op.c has one over exchange.
 *  - It does not tell who is gone, and why: comm_gloo_peers.cc does. */
#include "trainer/comm/comm_gloo.h"

#include <gloo/common/error.h>

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace
{

using gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;
using namespace muster_gloo;

constexpr milliseconds FAILED_LINGER(3000), ORDERLY_LINGER(5000);
constexpr size_t CHUNK = 1 << 20; /* what counts as progress */

void gloo_interrupt(void *state)
{
	interrupt(static_cast<State *>(state));
}

/* ---- operations ---- */

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
	} clear { s };
	return flight.send ? flight.buffer->waitSend(nullptr, FOREVER)
					   : flight.buffer->waitRecv(nullptr, FOREVER);
}

/* Whether a thread of this process sleeps. One that the machine has not let run yet does not. */
bool sleeps(pid_t thread)
{
	std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
	std::string line;

	if (!std::getline(stat, line))
		return true;
	return line.compare(line.rfind(')') + 1, 2, " S") == 0;
}

/* After an interrupt: whether a transfer is complete. A helper aborts each wait, once it is one; a
 * complete one does not wait. */
bool is_complete(Flight &flight)
{
	pid_t waiter = gettid();
	bool complete = false;

	for (int attempt = 0; attempt < 2 && !complete; attempt++) {
		std::atomic<bool> over { false };
		std::thread helper([&] {
			while (!over) {
				std::this_thread::sleep_for(milliseconds(2));
				if (!over && sleeps(waiter))
					flight.send ? flight.buffer->abortWaitSend() : flight.buffer->abortWaitRecv();
			}
		});
		try {
			complete = true;
			while (flight.chunks > 0 && complete) {
				complete = flight.send ? flight.buffer->waitSend(nullptr, FOREVER)
									   : flight.buffer->waitRecv(nullptr, FOREVER);
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

/* "waiting for rank 2 on node7, rank 3 on node8": those whose pieces, or else whose sums are
 * missing, since a rank that waits for a piece has no sum for others. Who has all pieces can't tell
 * a rank that waits so from one that is lost: the report of where the ranks stood does
 * (comm_last_words). */
std::string missing(State *s, std::vector<Flight> &flights)
{
	std::vector<bool> named(static_cast<size_t>(s->size));
	std::string text;

	for (int sum = 0; sum < 2 && text.empty(); sum++)
		for (auto &flight : flights) {
			auto peer = static_cast<size_t>(flight.peer);
			if (flight.sum != (sum == 1) || named[peer] || is_complete(flight))
				continue;
			named[peer] = true;
			text += (text.empty() ? "waiting for " : ", ") + s->names[peer];
		}
	return text.empty() ? "all transfers complete" : text;
}

void post_chunk(Flight &flight, size_t at)
{
	size_t bytes = std::min(CHUNK, flight.buffer->size - at);

	if (flight.send)
		flight.buffer->send(flight.peer, SLOT_DATA, at, bytes);
	else
		flight.buffer->recv(flight.peer, SLOT_DATA, at, bytes);
	flight.chunks++;
}

/* Those that are sent, or those that are received; sums are sent later. */
void post(State *s, const struct comm_transfer *transfers, int count, bool send, bool sum,
	std::vector<Flight> &flights)
{
	for (int i = 0; i < count; i++) {
		const auto &t = transfers[i];
		if (send == (t.receive != 0))
			continue;
		flights.push_back(
			{ s->mesh->createUnboundBuffer(t.buffer, t.bytes), t.peer, send, sum, 0 });
		for (size_t at = 0; at < t.bytes && !(send && sum); at += CHUNK)
			post_chunk(flights.back(), at);
	}
}

/* Has the sum made of each chunk of which every piece has come, and sends it on. False when
 * interrupted, or when it couldn't be made (`failed`). */
bool make_sums(State *s, std::vector<Flight> &flights, const struct comm_sums *sums, bool *failed,
	struct err *err)
{
	auto first = std::find_if(flights.begin(), flights.end(),
		[](const Flight &f) { return !f.send && !f.sum; });
	size_t size = first == flights.end() ? 0 : first->buffer->size;

	for (size_t at = 0; at < size; at += CHUNK) {
		for (auto &flight : flights) {
			if (flight.send || flight.sum)
				continue;
			if (!wait_chunk(s, flight))
				return false;
			flight.chunks--;
			s->events.progress(s->events.arg);
		}
		*failed = sums->make(sums->arg, at, std::min(CHUNK, size - at), err) < 0;
		if (*failed)
			return false;
		for (auto &flight : flights)
			if (flight.send && flight.sum)
				post_chunk(flight, at);
	}
	return true;
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

/* Both sides of a connection post in the same order: pieces before sums. */
void post_all(State *s, const struct comm_transfer *transfers, int count,
	const struct comm_sums *sums, std::vector<Flight> &flights)
{
	post(s, transfers, count, false, false, flights);
	if (sums)
		post(s, sums->transfers, sums->count, false, true, flights);
	post(s, transfers, count, true, false, flights);
	if (sums)
		post(s, sums->transfers, sums->count, true, true, flights);
}

void *gloo_begin(void *state, const struct comm_transfer *transfers, int count,
	const struct comm_sums *sums)
{
	auto s = static_cast<State *>(state);
	Exchange &exchange = *s->exchanges.emplace(s->exchanges.end());

	exchange.flights.reserve(static_cast<size_t>(count + (sums ? sums->count : 0)));
	try {
		post_all(s, transfers, count, sums, exchange.flights);
	} catch (const std::exception &e) {
		exchange.broken = reason_of(e);
	}
	return &exchange;
}

/* The reason, as far as it can be told: of a connection that was closed, or of an interrupt ("" in
 * `closed`). */
int explain(State *s, Exchange *exchange, const std::string &closed, struct err *err)
{
	std::string why = closed.empty() ? missing(s, exchange->flights) : explain_closed(s, closed);

	return err_fail(err, EXIT_LOST, "%s", why.c_str());
}

int gloo_make(void *state, void *begun, const struct comm_sums *sums, struct err *err)
{
	auto s = static_cast<State *>(state);
	auto exchange = static_cast<Exchange *>(begun);
	std::string closed = exchange->broken;
	bool failed = false;

	try {
		if (closed.empty() && make_sums(s, exchange->flights, sums, &failed, err))
			return 0;
	} catch (const std::exception &e) {
		closed = reason_of(e);
	}
	return failed ? -1 : explain(s, exchange, closed, err);
}

int gloo_finish(void *state, void *begun, struct err *err)
{
	auto s = static_cast<State *>(state);
	auto exchange = static_cast<Exchange *>(begun);
	std::string closed = exchange->broken;

	try {
		if (closed.empty() && wait_all(s, exchange->flights)) {
			s->exchanges.remove_if([&](const Exchange &other) { return &other == exchange; });
			return 0;
		}
	} catch (const std::exception &e) {
		closed = reason_of(e);
	}
	return explain(s, exchange, closed, err);
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

void gloo_leave(void *state, const char *why, const unsigned char *flight)
{
	auto s = static_cast<State *>(state);

	say_goodbye(s, why, flight);
	bool alone = linger_on(s, why ? FAILED_LINGER : ORDERLY_LINGER);
	s->deaf = true;
	s->heard->abortWaitRecv();
	if (s->hearer.joinable())
		s->hearer.join();
	/* A hard close, which drops what is not sent yet. Otherwise the end of `mesh` closes them,
	 * softly. */
	if (why || alone)
		s->mesh->closeConnections();
	s->exchanges.clear();
}

bool gloo_said(void *state, int rank, unsigned char *flight, double *now)
{
	return hear_of(static_cast<State *>(state), rank, flight, now);
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
	for (int rank = 0; rank < s->size; rank++)
		s->names.push_back("rank " + std::to_string(rank));
	if (connect_all(s, ident, rdzv, err) < 0)
		return -1;
	watch_peers(s);
	return 0;
}

void *gloo_open(const struct ident *ident, struct rdzv *rdzv, const struct comm_events *events,
	struct err *err)
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
	"gloo",
	false,
	gloo_open,
	nullptr,
	gloo_begin,
	gloo_make,
	gloo_finish,
	nullptr,
	nullptr,
	gloo_interrupt,
	gloo_check,
	gloo_leave,
	gloo_said,
	gloo_close,
	gloo_peer,
	nullptr,
};
