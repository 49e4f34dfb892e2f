/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of a Gloo communicator come to be connected: one line a rank, one fence, connections between any two
 * (doc/comm-links.md), and where these can't be made, one more fence that says why, and who is lost. */
#include "trainer/comm_gloo.h"

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/pair.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

extern "C" {
#include "common/clock.h"
#include "trainer/comm_address.h"
#include "trainer/comm_links.h"
}

namespace muster_gloo {

namespace tcp = gloo::transport::tcp;

constexpr double CONNECT_SHARE = 0.5; /* of the rendezvous' deadline; the rest is for finding out who is missing */

namespace {

/* A pair listens as soon as it is made, for a peer that is to connect with it. Nobody does: it gets a connection instead. */
class Adopted : public tcp::Pair {
public:
	using tcp::Pair::Pair;

	/* The place of the listening socket, which is closed with that, becomes the connection's: to take it from Gloo's thread
	 * first would wait until that looks up, every 10 ms. */
	void adopt(int fd)
	{
		Lock hold(m_);
		bool placed = state_ == LISTENING && dup3(fd, fd_, O_CLOEXEC) >= 0;
		::close(fd);
		if (!placed)
			throw std::runtime_error("couldn't give a connection to Gloo");
		handleConnected();
	}
};

class Transport : public tcp::Context {
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

/* Of Gloo's device only its thread is needed; what its pairs listen on for a moment is no other node's. */
Mesh::Mesh(int rank, int size) : gloo::Context(rank, size)
{
	tcp::attr attr("127.0.0.1");
	device_ = tcp::CreateDevice(attr);
	transportContext_ = std::make_shared<Transport>(std::static_pointer_cast<tcp::Device>(device_), rank, size);
	transportContext_->setTimeout(FOREVER);
}

void Mesh::adopt(int peer, int fd)
{
	std::static_pointer_cast<Transport>(transportContext_)->adopt(peer, fd);
}

/* Gloo's messages begin with "[file:line] ". */
std::string reason_of(const std::exception &e)
{
	std::string text = e.what();
	size_t end = text.find("] ");
	return text[0] == '[' && end != std::string::npos ? text.substr(end + 2) : text;
}

namespace {

using Links = std::unique_ptr<struct comm_links, decltype(&comm_links_close)>;

/* What each rank publishes: 'A', its node's name, NUL, where it listens; or 'E' and why it can't take part. */
std::string own_value(State *s, const struct ident *ident, Links *links, std::string *failure)
{
	char address[COMM_ADDRESS_SIZE];
	struct err err = {};

	if (comm_address(ident, address, &err) < 0) {
		*failure = err.text;
		return "E" + *failure;
	}
	links->reset(comm_links_open(s->rank, s->size, address, &err));
	if (*links)
		return "A" + std::string(ident->node) + '\0' + comm_links_place(links->get());
	*failure = std::string("comm: couldn't listen on ") + address + ": " + err.text;
	return "E" + *failure;
}

/* Reads a peer's value: its node and where it listens. */
int read_peer(State *s, struct rdzv *rdzv, const char *key, int peer, struct comm_links *links, struct err *err)
{
	void *value = nullptr;
	size_t size = 0;

	if (rdzv_get(rdzv, peer, key, &value, &size, 0, err) < 0)
		return err_prefix(err, "comm: couldn't get the address of rank %d", peer);
	std::string text(static_cast<char *>(value), size);
	free(value);
	auto &name = s->names[static_cast<size_t>(peer)];
	if (text.substr(0, 1) == "E")
		return err_fail(err, EXIT_LOST, "comm: couldn't connect: %s gave up: %s", name.c_str(), text.c_str() + 1);
	size_t end = text.find('\0');
	if (text.substr(0, 1) != "A" || end == std::string::npos || comm_links_find(links, peer, text.c_str() + end + 1) < 0)
		return err_set(err, "comm: couldn't read the address of rank %d", peer);
	name += " on " + text.substr(1, end - 1);
	return 0;
}

/* Why the first rank that has a reason has given up; "": none has. */
int read_reasons(State *s, struct rdzv *rdzv, const char *key, std::string *reason, struct err *err)
{
	for (int peer = 0; peer < s->size && reason->empty(); peer++) {
		void *value = nullptr;
		size_t size = 0;

		if (peer == s->rank)
			continue;
		if (rdzv_get(rdzv, peer, key, &value, &size, 0, err) < 0)
			return err_prefix(err, "comm: couldn't learn why rank %d is not connected", peer);
		std::string text(static_cast<char *>(value), size);
		free(value);
		if (!text.empty())
			*reason = s->names[static_cast<size_t>(peer)] + " gave up: " + text;
	}
	return 0;
}

/* The ranks meet once more. One that was lost on the way is named by the rendezvous, where those that wait for it would
 * blame each other. `own` is this rank's reason; another one's comes first unless it is the best. Always -1. */
int give_up(State *s, struct rdzv *rdzv, const char *key, const struct err *own, bool best, double seconds, struct err *err)
{
	std::string reason;

	if (rdzv_put(rdzv, key, own->text, best ? std::strlen(own->text) : 0, err) < 0 || rdzv_fence(rdzv, seconds, err) < 0)
		return err_prefix(err, "comm: couldn't connect");
	if (!best && read_reasons(s, rdzv, key, &reason, err) < 0)
		return -1;
	if (!reason.empty())
		return err_fail(err, EXIT_LOST, "comm: couldn't connect: %s", reason.c_str());
	*err = *own;
	return -1;
}

/* All connections, or why not. */
int connect_links(State *s, Links links, struct rdzv *rdzv, const char *key, struct err *err)
{
	struct err why = {};
	int peer = 0;
	const double timeout = rdzv_timeout(rdzv);
	struct deadline deadline = deadline_in(timeout);
	enum comm_links_end end = comm_links_connect(links.get(), CONNECT_SHARE * timeout, &peer, &why);

	if (end != COMM_LINKS_ALL) {
		err_prefix(&why, "comm: couldn't connect to %s", s->names[static_cast<size_t>(peer)].c_str());
		double left = std::max(std::ceil(deadline_left(deadline)), (1 - CONNECT_SHARE) / 2 * timeout);
		return give_up(s, rdzv, key, &why, end == COMM_LINKS_MISSING, left, err);
	}
	for (peer = 0; peer < s->size; peer++)
		if (peer != s->rank)
			s->mesh->adopt(peer, comm_links_take(links.get(), peer));
	return 0;
}

} // namespace

int connect_all(State *s, const struct ident *ident, struct rdzv *rdzv, struct err *err)
{
	static std::atomic<int> opened{0}; /* a key is used once */
	std::string key = "comm.gloo." + std::to_string(opened++), failure;
	Links links(nullptr, comm_links_close);
	std::string value = own_value(s, ident, &links, &failure);

	if (rdzv_put(rdzv, key.c_str(), value.data(), value.size(), err) < 0 || rdzv_fence(rdzv, 0, err) < 0)
		return err_prefix(err, "comm: couldn't exchange addresses");
	if (!failure.empty())
		return err_fail(err, EXIT_USAGE, "%s", failure.c_str());
	for (int peer = 0; peer < s->size; peer++)
		if (peer != s->rank && read_peer(s, rdzv, key.c_str(), peer, links.get(), err) < 0)
			return -1;
	if (connect_links(s, std::move(links), rdzv, (key + ".failed").c_str(), err) < 0)
		return -1;
	s->names[static_cast<size_t>(s->rank)] += std::string(" on ") + ident->node;
	return 0;
}

} // namespace muster_gloo
