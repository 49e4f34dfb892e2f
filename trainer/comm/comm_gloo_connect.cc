/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of a Gloo communicator come to be connected: one line a rank, one fence,
 * connections between any two (doc/comm-links.md), and where these can't be made, one more fence
 * that says why, and who is lost. */
#include "trainer/comm/comm_gloo.h"

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/pair.h>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

extern "C" {
#include "common/clock.h"
#include "launch/rank_status.h"
#include "trainer/comm/comm_address.h"
#include "trainer/comm/comm_links.h"
}

namespace muster_gloo
{

namespace tcp = gloo::transport::tcp;

constexpr double CONNECT_SHARE =
	0.5; /* of the rendezvous' deadline; the rest is for finding out who is missing */

namespace
{

/* A pair listens as soon as it is made, for a peer that is to connect with it. Nobody does: it gets
 * a connection instead. */
class Adopted : public tcp::Pair
{
  public:
	using tcp::Pair::Pair;

	/* The place of the listening socket, which is closed with that, becomes the connection's: to
	 * take it from Gloo's thread first would wait until that looks up, every 10 ms. */
	void adopt(int fd)
	{
		Lock hold(m_);
		bool placed = state_ == LISTENING && dup3(fd, fd_, O_CLOEXEC) >= 0;
		::close(fd);
		if (!placed)
			throw std::runtime_error("couldn't give a connection to Gloo");
		handleConnected();
	}

	bool is_closed()
	{
		Lock hold(m_);
		return state_ == CLOSED;
	}
};

class Transport : public tcp::Context
{
  public:
	using tcp::Context::Context;

	void adopt(int peer, int fd)
	{
		auto pair = std::make_unique<Adopted>(this, device_.get(), peer, getTimeout());
		pair->adopt(fd);
		pairs_[static_cast<size_t>(peer)] = std::move(pair);
	}
};

} // namespace

/* Makes Gloo's device, whose thread does not preempt others when it wakes. It polls a connection
 * that another thread has locked without a pause, and would do so for a whole time slice where it
 * takes the CPU from that very thread: ranks that share a core would be half as fast. A thread
 * inherits its scheduling policy, so it is this one's for a moment. */
static std::shared_ptr<gloo::transport::Device> make_device()
{
	tcp::attr attr("127.0.0.1");
	struct sched_param param, batch = {};
	int policy;
	bool other = pthread_getschedparam(pthread_self(), &policy, &param) == 0
		&& policy == SCHED_OTHER && pthread_setschedparam(pthread_self(), SCHED_BATCH, &batch) == 0;
	auto device = tcp::CreateDevice(attr);

	if (other)
		pthread_setschedparam(pthread_self(), policy, &param);
	return device;
}

/* Of Gloo's device only its thread is needed; what its pairs listen on for a moment is no other
 * node's. */
Mesh::Mesh(int rank, int size) : gloo::Context(rank, size)
{
	device_ = make_device();
	transportContext_ =
		std::make_shared<Transport>(std::static_pointer_cast<tcp::Device>(device_), rank, size);
	transportContext_->setTimeout(FOREVER);
}

void Mesh::adopt(int peer, int fd)
{
	std::static_pointer_cast<Transport>(transportContext_)->adopt(peer, fd);
}

bool Mesh::is_closed(int peer)
{
	return static_cast<Adopted *>(getPair(peer).get())->is_closed();
}

/* Gloo's messages begin with "[file:line] ". */
std::string reason_of(const std::exception &e)
{
	std::string text = e.what();
	size_t end = text.find("] ");
	return text[0] == '[' && end != std::string::npos ? text.substr(end + 2) : text;
}

namespace
{

using Links = std::unique_ptr<struct comm_links, decltype(&comm_links_close)>;

/* What the ranks have told each other; none where they couldn't. */
struct Words {
	struct rank_status *all;
	int count;
	~Words() { rank_statuses_free(all, count); }
};

/* Listens where the others can reach this rank. */
int listen(const State *s, const struct ident *ident, Links *links, struct err *err)
{
	char address[COMM_ADDRESS_SIZE];

	if (comm_address(ident, address, err) < 0)
		return -1;
	links->reset(comm_links_open(s->rank, s->size, address, err));
	return *links ? 0 : err_prefix(err, "comm: couldn't listen on %s", address);
}

/* Learns where the others listen, and their names. */
int find_peers(State *s, const struct ident *ident, struct rdzv *rdzv, const std::string &key,
	Links *links, struct err *err)
{
	struct err failure;
	struct rank_status_own own = {};

	if (listen(s, ident, links, &failure) < 0) {
		own.failure = &failure;
	} else {
		own.data = comm_links_place(links->get());
		own.size = std::strlen(comm_links_place(links->get()));
	}
	Words words { rank_status_exchange(rdzv, ident, key.c_str(), &own, 0, err), s->size };
	if (!words.all)
		return err_prefix(err, "comm: couldn't exchange addresses");
	if (rank_statuses_check(words.all, s->size, err) < 0)
		return -1;
	for (int rank = 0; rank < s->size; rank++) {
		s->names[static_cast<size_t>(rank)] += std::string(" on ") + words.all[rank].node;
		if (rank != s->rank && comm_links_find(links->get(), rank, words.all[rank].data) < 0)
			return err_set(err, "comm: couldn't read the address of rank %d", rank);
	}
	return 0;
}

/* The ranks meet once more. One that was lost on the way is named by the rendezvous, where those
 * that wait for it would blame each other. `why` is this rank's reason; without `knows` another
 * one's comes first. Always -1. */
int give_up(const State *s, const struct ident *ident, struct rdzv *rdzv, const std::string &key,
	const struct err &why, bool knows, double seconds, struct err *err)
{
	struct rank_status_own own = {};

	own.number = knows;
	own.data = why.text;
	own.size = std::strlen(why.text);
	Words words { rank_status_exchange(rdzv, ident, key.c_str(), &own, seconds, err), s->size };
	if (!words.all)
		return err_prefix(err, "comm: couldn't connect");
	int first = 0;
	while (first < s->size && !words.all[first].number)
		first++;
	if (first < s->size && !knows)
		return err_fail(err, EXIT_LOST, "%s: %s", rank_status_name(words.all, first).text,
			words.all[first].data);
	*err = why;
	return -1;
}

} // namespace

int connect_all(State *s, const struct ident *ident, struct rdzv *rdzv, struct err *err)
{
	static std::atomic<int> opened { 0 }; /* a key is used once */
	const std::string key = "comm.gloo." + std::to_string(opened++);
	const double timeout = rdzv_timeout(rdzv);
	Links links(nullptr, comm_links_close);
	struct err why = {};
	int peer = 0;

	if (find_peers(s, ident, rdzv, key, &links, err) < 0)
		return -1;
	struct deadline deadline = deadline_in(timeout);
	enum comm_links_end end = comm_links_connect(links.get(), CONNECT_SHARE * timeout, &peer, &why);
	if (end != COMM_LINKS_ALL) {
		err_prefix(&why, "comm: couldn't connect to %s",
			s->names[static_cast<size_t>(peer)].c_str());
		double left =
			std::max(std::ceil(deadline_left(deadline)), (1 - CONNECT_SHARE) / 2 * timeout);
		return give_up(s, ident, rdzv, key + ".failed", why, end == COMM_LINKS_MISSING, left, err);
	}
	for (peer = 0; peer < s->size; peer++)
		if (peer != s->rank)
			s->mesh->adopt(peer, comm_links_take(links.get(), peer));
	return 0;
}

} // namespace muster_gloo
