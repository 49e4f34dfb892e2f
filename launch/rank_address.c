/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the network interface. Debian gives a host's own name the address 127.0.1.1, so an
 * address that a name resolves to counts only if an interface other than loopback has it. */
#include "launch/rank_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/node_address.h"

static bool is_inet(const struct ifaddrs *at)
{
	return at->ifa_addr
		&& (at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6);
}

/* A link-local IPv6 address means nothing without its scope, so it is left out. */
static bool is_global(const struct ifaddrs *at)
{
	if (!is_inet(at) || !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK))
		return false;
	return at->ifa_addr->sa_family == AF_INET
		|| !IN6_IS_ADDR_LINKLOCAL(
			&((const struct sockaddr_in6 *)(const void *)at->ifa_addr)->sin6_addr);
}

static int write_digits(const struct sockaddr *address, char out[RANK_ADDRESS_SIZE])
{
	socklen_t size =
		address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	return getnameinfo(address, size, out, RANK_ADDRESS_SIZE, NULL, 0, NI_NUMERICHOST) == 0 ? 0
																							: -1;
}

/* IPv4 first, so that all nodes end up with the same family. */
static const struct sockaddr *pick(const struct ifaddrs *list, const char *name)
{
	static const int families[] = { AF_INET, AF_INET6 };

	for (int i = 0; i < 2; i++)
		for (const struct ifaddrs *at = list; at; at = at->ifa_next)
			if (is_inet(at) && at->ifa_addr->sa_family == families[i]
				&& (name ? strcmp(at->ifa_name, name) == 0 && (at->ifa_flags & IFF_UP)
						 : is_global(at)))
				return at->ifa_addr;
	return NULL;
}

/* Whether one of this node's interfaces has the address, in digits. */
static bool is_own(const struct ifaddrs *list, const char *digits)
{
	char own[RANK_ADDRESS_SIZE];

	for (const struct ifaddrs *at = list; at; at = at->ifa_next)
		if (is_global(at) && write_digits(at->ifa_addr, own) == 0 && strcmp(own, digits) == 0)
			return true;
	return false;
}

static int resolve(const struct ifaddrs *list, const char *host, char address[RANK_ADDRESS_SIZE])
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *found = NULL;
	int rc = -1;

	if (!host[0] || node_address(host, NULL, &hints, &found) != 0)
		return -1;
	for (struct addrinfo *at = found; at && rc < 0; at = at->ai_next)
		if (write_digits(at->ai_addr, address) == 0 && is_own(list, address))
			rc = 0;
	freeaddrinfo(found);
	return rc;
}

static int named_interface(const struct ifaddrs *list, const char *variable, const char *name,
	char address[RANK_ADDRESS_SIZE], struct err *err)
{
	char known[400] = "";
	size_t used = 0;
	const struct sockaddr *found = pick(list, name);

	if (found && write_digits(found, address) == 0)
		return 0;
	for (const struct ifaddrs *at = list; at && used < sizeof known; at = at->ifa_next)
		if (is_inet(at) && at->ifa_addr->sa_family == AF_INET && (at->ifa_flags & IFF_UP))
			used += (size_t)snprintf(known + used, sizeof known - used, " %s", at->ifa_name);
	return err_fail(err, EXIT_USAGE,
		"comm: couldn't use the interface %s=%s: it is not up with an address; up are:%s", variable,
		name, known);
}

static int choose(const struct ident *ident, const struct ifaddrs *list,
	char address[RANK_ADDRESS_SIZE], struct err *err)
{
	static const char *const variables[] = { "MUSTER_IFNAME", "GLOO_SOCKET_IFNAME" };
	char host[256] = "";

	for (int i = 0; i < 2; i++) {
		const char *name = getenv(variables[i]);
		if (name && name[0])
			return named_interface(list, variables[i], name, address, err);
	}
	if (ident->local_world_size == ident->world_size) {
		snprintf(address, RANK_ADDRESS_SIZE, "127.0.0.1");
		return 0;
	}
	if (gethostname(host, sizeof host - 1) != 0)
		host[0] = '\0';
	if (resolve(list, ident->node, address) == 0 || resolve(list, host, address) == 0)
		return 0;
	const struct sockaddr *first = pick(list, NULL);
	if (first && write_digits(first, address) == 0)
		return 0;
	return err_fail(err, EXIT_USAGE,
		"comm: couldn't find an address that other nodes reach: no interface but loopback is up; "
		"MUSTER_IFNAME names one");
}

int rank_address(const struct ident *ident, char address[RANK_ADDRESS_SIZE], struct err *err)
{
	struct ifaddrs *list = NULL;

	if (getifaddrs(&list) != 0)
		return err_set(err, "comm: couldn't list the network interfaces");
	int rc = choose(ident, list, address, err);
	freeifaddrs(list);
	return rc;
}
