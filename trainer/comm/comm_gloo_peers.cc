/* SPDX-License-Identifier: Apache-2.0 */
/* Who is gone, and why. What Gloo (2022-05) does not do, and this file does:
 *  - A peer's death reaches only buffers of which no byte has moved yet. So closed_peers() asks the
 * connections.
 *  - A rank that gives up looks to its peers as if it had died. So it says goodbye with its reason,
 * which a thread of each rank awaits (`hear`), and the ranks that follow name the true cause. */
#include "trainer/comm/comm_gloo.h"

#include <csignal>
#include <cstring>

extern "C" {
#include "common/clock.h"
}

namespace muster_gloo
{

using std::chrono::milliseconds;

namespace
{

constexpr milliseconds GOODBYE_GRACE(200), LISTEN_AGAIN(10);

/* Gloo writes to sockets without MSG_NOSIGNAL; on its own threads all signals are blocked, here
 * SIGPIPE is. */
class QuietPipe
{
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

/* Each peer's goodbye has its place from the beginning, so it is sent in one go, and neither its
 * sender's end nor another peer's can keep it back. (A receive from any peer is settled peer by
 * peer with the sender; one that closes its connection meanwhile makes it fail for all, and ranks
 * that did not hear each other's goodbye then wait in vain.) */
void await_goodbyes(State *s)
{
	s->heard_words.assign(static_cast<size_t>(s->size), Goodbye {});
	s->heard = s->mesh->createUnboundBuffer(s->heard_words.data(),
		s->heard_words.size() * sizeof(Goodbye));
	for (int peer = 0; peer < s->size; peer++) {
		try {
			if (peer != s->rank)
				s->heard->recv(peer, SLOT_GOODBYE, static_cast<size_t>(peer) * sizeof(Goodbye),
					sizeof(Goodbye));
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
		interrupt(s);
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

/* One more receive is complete. Where several are, Gloo names the last one's rank for each: a rank
 * that is named again stands for one that was not. Who that is their flags tell, once no goodbye is
 * under way that has its flag already. */
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

/* The thread that hears goodbyes until it is told to stop. Once a peer has ended without one, every
 * wait that is not over at once throws; the other peers' goodbyes come all the same. */
void hear(State *s)
{
	Heard heard { std::vector<bool>(static_cast<size_t>(s->size)), 0 };

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

/* The words of a rank that has_come(), also where the hearer could not tell whose they were. */
__attribute__((noinline, no_sanitize("thread"))) void copy_flight(const Goodbye &words,
	unsigned char *flight, double *now)
{
	const volatile unsigned char *from = words.flight;

	for (size_t i = 0; i < sizeof words.flight; i++)
		flight[i] = from[i];
	*now = *const_cast<const volatile double *>(&words.now);
}

} // namespace

void interrupt(State *s)
{
	Lock hold(s->lock);

	s->interrupted = true;
	if (s->waiting && s->waiting_send)
		s->waiting->abortWaitSend();
	else if (s->waiting)
		s->waiting->abortWaitRecv();
}

std::vector<int> closed_peers(State *s)
{
	std::vector<int> closed;

	for (int peer = 0; peer < s->size; peer++)
		if (peer != s->rank && s->mesh->is_closed(peer))
			closed.push_back(peer);
	return closed;
}

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

std::string explain_closed(State *s, const std::string &otherwise)
{
	{
		Lock hold(s->lock);
		if (!s->told.empty())
			return s->told;
	}
	std::string lost = blame(s, closed_peers(s));
	return lost.empty() ? otherwise : lost;
}

void say_goodbye(State *s, const char *why, const unsigned char *flight)
{
	std::call_once(s->said, [&] {
		QuietPipe quiet;

		s->words.failed = why != nullptr;
		s->words.said = 1;
		s->words.now = clock_now();
		std::memcpy(s->words.flight, flight, sizeof s->words.flight);
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

bool linger_on(State *s, milliseconds limit)
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

bool hear_of(State *s, int rank, unsigned char *flight, double *now)
{
	const Goodbye &words = s->heard_words[static_cast<size_t>(rank)];

	if (!has_come(words))
		return false;
	copy_flight(words, flight, now);
	return true;
}

void watch_peers(State *s)
{
	await_goodbyes(s);
	s->hearer = std::thread(hear, s);
}

} // namespace muster_gloo
