/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses that this node gives to others, chosen as NCCL (2.30, src/misc/socket.cc and
 * src/os/linux.cc) and PyTorch's Gloo (2.9, ProcessGroupGloo.cpp) choose them. */
#include "config.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "checks/facts_probe.h"

/* Whether an interface may be chosen at all: it has an address that other nodes can use, too. */
static bool is_usable(const struct ifaddrs *at)
{
	if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) || !(at->ifa_flags & IFF_RUNNING))
		return false;
	if (at->ifa_addr->sa_family == AF_INET)
		return true;
	const struct in6_addr *six =
		&((const struct sockaddr_in6 *)(const void *)at->ifa_addr)->sin6_addr;
	return at->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(six)
		&& !IN6_IS_ADDR_LOOPBACK(six);
}

static int write_digits(const struct sockaddr *address, char *out, size_t size)
{
	socklen_t length =
		address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	return getnameinfo(address, length, out, (socklen_t)size, NULL, 0, NI_NUMERICHOST) == 0 ? 0
																							: -1;
}

/* Whether a list of NAME=ADDRESS words has that name. */
static bool has_name(const char *list, const char *name)
{
	size_t length = strlen(name);
	for (const char *at = list; *at; at += strcspn(at, " "), at += *at == ' ')
		if (strncmp(at, name, length) == 0 && at[length] == '=')
			return true;
	return false;
}

static void add(char *list, size_t size, const char *name, const char *digits)
{
	size_t used = strlen(list);
	if (used + strlen(name) + strlen(digits) + 3 < size && !has_name(list, name))
		snprintf(list + used, size - used, "%s%s=%s", used ? " " : "", name, digits);
}

/* Adds all interfaces that the words of NCCL_SOCKET_IFNAME match, in the kernel's order, each with
 * its first address. */
static void add_matches(const struct ifaddrs *list, const char *words, char *out, size_t size)
{
	char digits[NI_MAXHOST];
	for (const struct ifaddrs *at = list; at; at = at->ifa_next)
		if (is_usable(at) && facts_takes_interface(words, at->ifa_name)
			&& write_digits(at->ifa_addr, digits, sizeof digits) == 0)
			add(out, size, at->ifa_name, digits);
}

static void choose_nccl(struct facts *facts, const struct ifaddrs *list)
{
	static const char *const turns[] = { "ib", "^docker,lo,virbr", "docker", "lo", "virbr" };
	char *out = facts->nccl_ways;
	if (facts->nccl_wanted[0]) {
		add_matches(list, facts->nccl_wanted, out, sizeof facts->nccl_ways);
		return;
	}
	for (size_t i = 0; i < sizeof turns / sizeof turns[0] && !out[0]; i++)
		add_matches(list, turns[i], out, sizeof facts->nccl_ways);
}

/* The interface that has an address; "" if none has. */
static const char *owner_of(const struct ifaddrs *list, const char *digits)
{
	char own[NI_MAXHOST];
	for (const struct ifaddrs *at = list; at; at = at->ifa_next)
		if (is_usable(at) && write_digits(at->ifa_addr, own, sizeof own) == 0
			&& strcmp(own, digits) == 0)
			return at->ifa_name;
	return "";
}

/* An address that a name resolves to and that this node can listen on; "" for none. */
static void resolve_own(const char *name, char *out, size_t size)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	out[0] = '\0';
	if (!name[0] || getaddrinfo(name, NULL, &hints, &found) != 0)
		return;
	for (const struct addrinfo *at = found; at && !out[0]; at = at->ai_next) {
		int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0 || bind(fd, at->ai_addr, at->ai_addrlen) < 0
			|| write_digits(at->ai_addr, out, size) < 0)
			out[0] = '\0';
		if (fd >= 0)
			close(fd);
	}
	freeaddrinfo(found);
}

static void choose_gloo(struct facts *facts, const struct ifaddrs *list)
{
	char digits[NI_MAXHOST] = "", host[256] = "", names[sizeof facts->gloo_wanted], *rest = NULL;
	if (!facts->gloo_wanted[0]) {
		if (gethostname(host, sizeof host - 1) == 0)
			resolve_own(host, digits, sizeof digits);
		add(facts->gloo_ways, sizeof facts->gloo_ways, host[0] ? host : "?",
			digits[0] ? digits : "127.0.0.1");
		return;
	}
	snprintf(names, sizeof names, "%s", facts->gloo_wanted);
	for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
		for (const struct ifaddrs *at = list; at; at = at->ifa_next)
			if (is_usable(at) && strcmp(at->ifa_name, name) == 0
				&& write_digits(at->ifa_addr, digits, sizeof digits) == 0)
				add(facts->gloo_ways, sizeof facts->gloo_ways, name, digits);
}

void facts_probe_network(struct facts *facts)
{
	struct ifaddrs *list = NULL;
	char digits[NI_MAXHOST];
	if (getifaddrs(&list) < 0)
		return;
	choose_nccl(facts, list);
	choose_gloo(facts, list);
	resolve_own(facts->node, digits, sizeof digits);
	const char *owner = owner_of(list, digits);
	snprintf(facts->interface, sizeof facts->interface, "%s",
		strcmp(owner, "lo") == 0 ? "" : owner);
	freeifaddrs(list);
}
