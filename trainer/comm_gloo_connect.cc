/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of a Gloo communicator come to be connected: one value a rank, one fence, connections between any two, and one more
 * fence that says who has failed. */
#include "trainer/comm_gloo.h"

#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

extern "C" {
#include "common/clock.h"
#include "common/zero_runs.h"
#include "trainer/comm_address.h"
}

namespace muster_gloo {

using std::chrono::milliseconds;

constexpr double CONNECT_SHARE = 0.5; /* of the rendezvous' deadline; the rest is for finding out who is missing */
constexpr size_t VALUE_MAX = 64 << 10; /* of a rendezvous value */
constexpr int CONNECT_AT_ONCE = 64;
constexpr long HURRY_NANOSECONDS = 200000;

std::vector<char> Mesh::listen(const char *address, milliseconds timeout)
{
	gloo::transport::tcp::attr attr(address);
	device_ = gloo::transport::tcp::CreateDevice(attr);
	transportContext_ = device_->createContext(rank, size);
	/* a pair waits five times this long for its connection */
	transportContext_->setTimeout(timeout / 5);
	std::vector<char> all;
	for (int peer = 0; peer < size; peer++) {
		if (peer == rank)
			continue;
		auto &pair = transportContext_->createPair(peer);
		pair->setLocalRank(0);
		auto bytes = pair->address().bytes();
		all.insert(all.end(), bytes.begin(), bytes.end());
	}
	return all;
}

void Mesh::connect(int peer, const std::vector<char> &all)
{
	size_t each = all.size() / static_cast<size_t>(size - 1);
	size_t place = static_cast<size_t>(rank > peer ? rank - 1 : rank);
	auto begin = all.begin() + static_cast<ptrdiff_t>(place * each);
	getPair(peer)->connect(std::vector<char>(begin, begin + static_cast<ptrdiff_t>(each)));
}

Hurry::Hurry(const std::shared_ptr<gloo::transport::Device> &device)
	: device_(std::dynamic_pointer_cast<gloo::transport::tcp::Device>(device))
{
	if (device_)
		timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (timer_ < 0)
		return;
	every(HURRY_NANOSECONDS);
	device_->registerDescriptor(timer_, EPOLLIN, this);
}

Hurry::~Hurry()
{
	if (timer_ < 0)
		return;
	device_->unregisterDescriptor(timer_, this);
	close(timer_);
}

/* To take the timer from the device waits for its thread once more: only its ticks end. */
void Hurry::end()
{
	if (timer_ >= 0)
		every(0);
}

void Hurry::every(long nanoseconds)
{
	const struct itimerspec times = { { 0, nanoseconds }, { 0, nanoseconds } };

	timerfd_settime(timer_, 0, &times, nullptr);
}

void Hurry::handleEvents(int)
{
	uint64_t ticks;

	while (read(timer_, &ticks, sizeof ticks) > 0)
		;
}

/* Gloo's messages begin with "[file:line] ". */
std::string reason_of(const std::exception &e)
{
	std::string text = e.what();
	size_t end = text.find("] ");
	return text[0] == '[' && end != std::string::npos ? text.substr(end + 2) : text;
}

namespace {

/* Gloo's addresses are of 136 bytes, most of them zero. */
std::string pack(const std::vector<char> &addresses)
{
	std::string packed(zero_runs_bound(addresses.size()), '\0');
	packed.resize(zero_runs_pack(reinterpret_cast<const unsigned char *>(addresses.data()), addresses.size(),
		reinterpret_cast<unsigned char *>(&packed[0])));
	return packed;
}

/* False for what is none, or not a number of bytes for each of the other ranks. */
bool unpack(const State *s, const std::string &packed, std::vector<char> *addresses)
{
	auto bytes = reinterpret_cast<const unsigned char *>(packed.data());
	long size = zero_runs_size(bytes, packed.size());
	if (size <= 0 || size % (s->size - 1))
		return false;
	addresses->resize(static_cast<size_t>(size));
	zero_runs_unpack(bytes, packed.size(), reinterpret_cast<unsigned char *>(addresses->data()));
	return true;
}

/* What each rank publishes: 'A', its node's name, NUL, addresses as common/zero_runs.h packs them; or 'E' and why it can't take
 * part. */
std::string own_value(State *s, const struct ident *ident, double seconds, std::string *failure)
{
	char address[COMM_ADDRESS_SIZE];
	struct err err = {};

	if (comm_address(ident, address, &err) < 0) {
		*failure = err.text;
		return "E" + *failure;
	}
	try {
		auto addresses = s->mesh->listen(address, milliseconds(static_cast<long>(seconds * 1000)));
		std::string value = "A" + std::string(ident->node) + '\0' + pack(addresses);
		if (value.size() <= VALUE_MAX)
			return value;
		*failure = "comm: couldn't publish the addresses for " + std::to_string(s->size) + " ranks: more than 64 KiB";
	} catch (const std::exception &e) {
		*failure = std::string("comm: couldn't listen on ") + address + ": " + reason_of(e);
	}
	return "E" + *failure;
}

/* Reads a peer's value: its node and the addresses that it listens on. */
int read_peer(State *s, struct rdzv *rdzv, const char *key, int peer, std::vector<char> *addresses, struct err *err)
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
	if (text.substr(0, 1) != "A" || end == std::string::npos || !unpack(s, text.substr(end + 1), addresses))
		return err_set(err, "comm: couldn't read the address of rank %d", peer);
	name += " on " + text.substr(1, end - 1);
	return 0;
}

/* Threads that are waited for where the block is left, whatever way. */
struct Crew {
	std::vector<std::thread> threads;
	~Crew()
	{
		for (auto &thread : threads)
			thread.join();
	}
};

void try_connect(State *s, int peer, const std::vector<char> &addresses, std::string *failure)
{
	try {
		s->mesh->connect(peer, addresses);
	} catch (const std::exception &e) {
		*failure = s->names[static_cast<size_t>(peer)] + ": " + reason_of(e);
	}
}

/* Connects to all, many at a time: to begin a connection Gloo waits for its own thread. Any two
 * ranks come to each other in the end, since all go through their peers in rank order. Or gives up when some can't be
 * reached, and `why` names the first. */
void connect_peers(State *s, const std::vector<std::vector<char>> &addresses, struct err *why)
{
	std::vector<std::string> failures(addresses.size());

	s->hurry = std::make_unique<Hurry>(s->mesh->getDevice());
	for (int first = 0; first < s->size && !why->text[0]; first += CONNECT_AT_ONCE) {
		{
			Crew crew;
			for (int peer = first; peer < std::min(first + CONNECT_AT_ONCE, s->size); peer++)
				if (peer != s->rank)
					crew.threads.emplace_back(try_connect, s, peer, std::cref(addresses[static_cast<size_t>(peer)]),
						&failures[static_cast<size_t>(peer)]);
		}
		auto failure = std::find_if(failures.begin(), failures.end(), [](const std::string &one) { return !one.empty(); });
		if (failure != failures.end())
			err_fail(why, EXIT_LOST, "comm: couldn't connect to %s", failure->c_str());
	}
	s->hurry->end();
}

/* Why the first rank that has given up did. */
int read_failure(State *s, struct rdzv *rdzv, const char *key, int peer, struct err *err)
{
	void *value = nullptr;
	size_t size = 0;

	if (rdzv_get(rdzv, peer, key, &value, &size, 0, err) < 0)
		return err_prefix(err, "comm: couldn't learn whether rank %d is connected", peer);
	std::string text(static_cast<char *>(value), size);
	free(value);
	return text.empty() ? 0 : err_fail(err, EXIT_LOST, "comm: couldn't connect: %s gave up: %s",
		s->names[static_cast<size_t>(peer)].c_str(), text.c_str());
}

/* All ranks meet once more before the first operation. One that was lost on the way is named by the rendezvous, where those
 * that wait for it would blame each other: a connection needs both ends. */
int meet_connected(State *s, struct rdzv *rdzv, const char *key, const struct err *why, double seconds, struct err *err)
{
	if (rdzv_put(rdzv, key, why->text, std::strlen(why->text), err) < 0 || rdzv_fence(rdzv, seconds, err) < 0)
		return err_prefix(err, "comm: couldn't connect");
	if (why->text[0]) {
		*err = *why;
		return -1;
	}
	for (int peer = 0; peer < s->size; peer++)
		if (peer != s->rank && read_failure(s, rdzv, key, peer, err) < 0)
			return -1;
	return 0;
}

} // namespace

int connect_all(State *s, const struct ident *ident, struct rdzv *rdzv, struct err *err)
{
	static std::atomic<int> opened{0}; /* a key is used once */
	const double timeout = rdzv_timeout(rdzv);
	std::string key = "comm.gloo." + std::to_string(opened++), failure;
	std::string value = own_value(s, ident, CONNECT_SHARE * timeout, &failure);
	std::vector<std::vector<char>> addresses(static_cast<size_t>(s->size));
	struct err why = {};

	if (rdzv_put(rdzv, key.c_str(), value.data(), value.size(), err) < 0 || rdzv_fence(rdzv, 0, err) < 0)
		return err_prefix(err, "comm: couldn't exchange addresses");
	if (!failure.empty())
		return err_fail(err, EXIT_USAGE, "%s", failure.c_str());
	struct deadline deadline = deadline_in(timeout);
	for (int peer = 0; peer < s->size; peer++)
		if (peer != s->rank && read_peer(s, rdzv, key.c_str(), peer, &addresses[static_cast<size_t>(peer)], err) < 0)
			return -1;
	connect_peers(s, addresses, &why);
	double left = std::max(std::ceil(deadline_left(deadline)), (1 - CONNECT_SHARE) / 2 * timeout);
	if (meet_connected(s, rdzv, (key + ".connected").c_str(), &why, left, err) < 0)
		return -1;
	s->names[static_cast<size_t>(s->rank)] += std::string(" on ") + ident->node;
	return 0;
}

} // namespace muster_gloo
