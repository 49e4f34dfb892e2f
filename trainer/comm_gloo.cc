/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator over Gloo's TCP transport: a connection between any two ranks, and unbound buffers on them.
 *
 * What Gloo (2022-05) does not do, and this file does:
 *  - A wait that times out closes every connection, so waits here have no timeout; other threads abort them.
 *  - A peer's death reaches only buffers of which no byte has moved yet. So one byte that nobody sends is awaited from
 *    each peer (`deaths`), and check() looks whether that has failed.
 *  - Its all-reduce can't be aborted at all, so comm_op.c has one over exchange.
 *  - A rank that gives up looks to its peers as if it had died. So it says goodbye with its reason, which a thread of
 *    each rank awaits (`hear`), and the ranks that follow name the true cause. */
#include "trainer/comm_gloo.h"

#include <gloo/common/error.h>
#include <gloo/transport/pair.h>

#include <algorithm>
#include <csignal>
#include <cstring>

extern "C" {
#include "common/clock.h"
}

namespace {

using gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;
using namespace muster_gloo;
using Lock = std::unique_lock<std::mutex>;

constexpr milliseconds FOREVER = std::chrono::hours(10000);
constexpr milliseconds FAILED_LINGER(1000), ORDERLY_LINGER(5000), GOODBYE_GRACE(200), LISTEN_AGAIN(10);
constexpr size_t CHUNK = 1 << 20; /* what counts as progress */
enum Slot : uint64_t { SLOT_DATA = 1, SLOT_DEATH, SLOT_GOODBYE };

/* Gloo writes to sockets without MSG_NOSIGNAL; on its own threads all signals are blocked, here SIGPIPE is. */
class QuietPipe {
public:
	QuietPipe()
	{
		sigemptyset(&pipe_);
		sigaddset(&pipe_, SIGPIPE);
		pthread_sigmask(SIG_BLOCK, &pipe_, &old_);
	}
	~QuietPipe()
	{
		struct timespec none = {};
		if (!sigismember(&old_, SIGPIPE)) {
			while (sigtimedwait(&pipe_, nullptr, &none) > 0)
				;
		}
		pthread_sigmask(SIG_SETMASK, &old_, nullptr);
	}

private:
	sigset_t pipe_, old_;
};

/* ---- peers that are gone ---- */

/* Awaits a byte that nobody sends from each living peer. Returns the ranks whose connection is closed already. */
std::vector<int> arm_deaths(State *s)
{
	std::vector<int> closed;
	QuietPipe quiet;

	Buffer armed = s->mesh->createUnboundBuffer(s->death_bytes.data(), s->death_bytes.size());
	for (int peer = 0; peer < s->size; peer++) {
		if (peer == s->rank)
			continue;
		try {
			armed->recv(peer, SLOT_DEATH, static_cast<size_t>(peer), 1);
		} catch (const std::exception &) {
			closed.push_back(peer);
		}
	}
	s->spent.push_back(std::move(s->deaths));
	s->deaths = std::move(armed);
	return closed;
}

/* The ranks whose connection is closed. Aborting the wait beforehand makes it a look: Gloo tests for an exception first. */
std::vector<int> closed_peers(State *s)
{
	std::lock_guard<std::mutex> one(s->checking);
	try {
		s->deaths->abortWaitRecv();
		s->deaths->waitRecv(nullptr, FOREVER);
		return {};
	} catch (const std::exception &) {
		return arm_deaths(s);
	}
}

/* Of the closed ones, those that had not finished, with the first reason given in a goodbye. */
std::string blame(State *s, const std::vector<int> &closed)
{
	Lock hold(s->lock);
	std::string lost;

	/* A goodbye comes before the end of its connection, but through another thread. */
	s->changed.wait_for(hold, GOODBYE_GRACE, [&] {
		for (int peer : closed)
			if (s->peers[static_cast<size_t>(peer)] == Peer::ALIVE)
				return false;
		return true;
	});
	for (int peer : closed) {
		auto at = static_cast<size_t>(peer);
		if (s->peers[at] == Peer::FAILED && !s->told.empty())
			return s->told;
		if (s->peers[at] == Peer::ALIVE)
			lost += (lost.empty() ? "" : ", ") + s->names[at];
	}
	return lost.empty() ? lost : lost + " is gone (connection closed)";
}

void gloo_interrupt(void *state)
{
	auto s = static_cast<State *>(state);
	Lock hold(s->lock);

	s->interrupted = true;
	if (s->waiting && s->waiting_send)
		s->waiting->abortWaitSend();
	else if (s->waiting)
		s->waiting->abortWaitRecv();
}

/* ---- goodbyes ---- */

/* Each peer's goodbye has its place from the beginning, so it is sent in one go, and neither its sender's end nor another
 * peer's can keep it back. (A receive from any peer is settled peer by peer with the sender; one that closes its
 * connection meanwhile makes it fail for all, and ranks that did not hear each other's goodbye then wait in vain.) */
void await_goodbyes(State *s)
{
	s->heard_words.assign(static_cast<size_t>(s->size), Goodbye{});
	s->heard = s->mesh->createUnboundBuffer(s->heard_words.data(), s->heard_words.size() * sizeof(Goodbye));
	for (int peer = 0; peer < s->size; peer++) {
		try {
			if (peer != s->rank)
				s->heard->recv(peer, SLOT_GOODBYE, static_cast<size_t>(peer) * sizeof(Goodbye), sizeof(Goodbye));
		} catch (const std::exception &) {
			/* it is gone, which the first operation will tell */
		}
	}
}

void on_goodbye(State *s, int peer, const Goodbye &words)
{
	{
		Lock hold(s->lock);
		s->peers[static_cast<size_t>(peer)] = words.failed ? Peer::FAILED : Peer::FINISHED;
		if (words.failed && s->told.empty())
			s->told = words.why;
		s->changed.notify_all();
	}
	if (words.failed) {
		s->events.lost(s->events.arg, words.why);
		gloo_interrupt(s);
	}
}

/* Whether a goodbye has come, asked while Gloo may be receiving it: the flag is its last word. */
__attribute__((noinline, no_sanitize("thread"))) bool has_come(const Goodbye &words)
{
	return *const_cast<const volatile int32_t *>(&words.said) != 0;
}

/* The goodbyes that the hearer has taken, and how many more are complete without a name. */
struct Heard {
	std::vector<bool> taken;
	size_t unnamed;
};

void take_goodbye(State *s, size_t peer, Heard *heard)
{
	Goodbye words = s->heard_words[peer];
	words.why[sizeof words.why - 1] = '\0';
	heard->taken[peer] = true;
	on_goodbye(s, static_cast<int>(peer), words);
}

/* One more receive is complete. Where several are, Gloo names the last one's rank for each: a rank that is named again stands for
 * one that was not. Who that is their flags tell, once no goodbye is under way that has its flag already. */
void take_goodbyes(State *s, size_t named, Heard *heard)
{
	if (!heard->taken[named])
		take_goodbye(s, named, heard);
	else
		heard->unnamed++;
	std::vector<size_t> come;
	for (size_t peer = 0; peer < heard->taken.size() && heard->unnamed > 0; peer++)
		if (!heard->taken[peer] && has_come(s->heard_words[peer]))
			come.push_back(peer);
	if (come.size() != heard->unnamed)
		return;
	for (size_t peer : come)
		take_goodbye(s, peer, heard);
	heard->unnamed = 0;
}

/* The thread that hears goodbyes until it is told to stop. Once a peer has ended without one, every wait that is not over
 * at once throws; the other peers' goodbyes come all the same. */
void hear(State *s)
{
	Heard heard{std::vector<bool>(static_cast<size_t>(s->size)), 0};

	while (!s->deaf) {
		try {
			int peer = s->rank;
			if (s->heard->waitRecv(&peer, FOREVER))
				take_goodbyes(s, static_cast<size_t>(peer), &heard);
		} catch (const std::exception &) {
			std::this_thread::sleep_for(LISTEN_AGAIN);
		}
	}
}

/* Tells all peers, once. `why` NULL: finished. */
void say_goodbye(State *s, const char *why, const unsigned char *standing)
{
	std::call_once(s->said, [&] {
		QuietPipe quiet;

		s->words.failed = why != nullptr;
		s->words.said = 1;
		s->words.now = clock_now();
		std::memcpy(s->words.standing, standing, sizeof s->words.standing);
		if (why && std::strstr(why, "gave up: "))
			std::snprintf(s->words.why, sizeof s->words.why, "%.600s", why);
		else if (why)
			std::snprintf(s->words.why, sizeof s->words.why, "%.100s gave up: %.500s",
				s->names[static_cast<size_t>(s->rank)].c_str(), why);
		s->saying = s->mesh->createUnboundBuffer(&s->words, sizeof s->words);
		for (int peer = 0; peer < s->size; peer++) {
			try {
				if (peer != s->rank)
					s->saying->send(peer, SLOT_GOODBYE, 0, sizeof s->words);
			} catch (const std::exception &) {
				/* it is gone */
			}
		}
	});
}

/* Waits until every peer has left as well or is gone: then nobody needs this rank any more. False when not all have. */
bool linger(State *s, milliseconds limit)
{
	auto end = std::chrono::steady_clock::now() + limit;
	auto all_gone = [&] {
		for (int peer = 0; peer < s->size; peer++)
			if (peer != s->rank && s->peers[static_cast<size_t>(peer)] == Peer::ALIVE)
				return false;
		return true;
	};
	for (;;) {
		auto closed = closed_peers(s);
		Lock hold(s->lock);

		for (int peer : closed)
			if (s->peers[static_cast<size_t>(peer)] == Peer::ALIVE)
				s->peers[static_cast<size_t>(peer)] = Peer::FAILED;
		if (s->changed.wait_for(hold, milliseconds(20), all_gone))
			return true;
		if (std::chrono::steady_clock::now() > end)
			return false;
	}
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

/* A connection was closed under an operation: by whom, if that can be told. */
std::string explain_closed(State *s, const std::string &otherwise)
{
	{
		Lock hold(s->lock);
		if (!s->told.empty())
			return s->told;
	}
	/* The operation may have heard before `deaths` has, so this asks the connections themselves. */
	std::vector<int> closed;
	{
		std::lock_guard<std::mutex> one(s->checking);
		closed = arm_deaths(s);
	}
	std::string lost = blame(s, closed);
	return lost.empty() ? otherwise : lost;
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

/* The words of a rank that has_come(), also where the hearer could not tell whose they were. */
__attribute__((noinline, no_sanitize("thread"))) void copy_standing(const Goodbye &words, unsigned char *standing, double *now)
{
	const volatile unsigned char *from = words.standing;

	for (size_t i = 0; i < sizeof words.standing; i++)
		standing[i] = from[i];
	*now = *const_cast<const volatile double *>(&words.now);
}

bool gloo_said(void *state, int rank, unsigned char *standing, double *now)
{
	auto s = static_cast<State *>(state);
	const Goodbye &words = s->heard_words[static_cast<size_t>(rank)];

	if (!has_come(words))
		return false;
	copy_standing(words, standing, now);
	return true;
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
	arm_deaths(s);
	await_goodbyes(s);
	s->hearer = std::thread(hear, s);
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
