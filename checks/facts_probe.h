/* SPDX-License-Identifier: Apache-2.0 */
/* Facts from the node itself: devices, CPUs, limits, versions. What can't be read stays unknown. */
#ifndef MUSTER_FACTS_PROBE_H
#define MUSTER_FACTS_PROBE_H

#include "checks/facts.h"

/* The GPU devices, and which of them this task may open. Opens none: that could wake a GPU up,
 * which takes seconds. */
void facts_probe_devices(struct facts *facts);

/* The CPUs that this task may run on, its limit of locked memory, RDMA adapters. */
void facts_probe_limits(struct facts *facts);

/* The versions of the driver, CUDA, NCCL and this program. Loads libcuda, libcudart and libnccl if
 * the loader finds them. */
void facts_probe_versions(struct facts *facts);

/* The names of the interfaces that are up and have an address. */
void facts_probe_interfaces(struct facts *facts);

/* The interfaces that NCCL and PyTorch's Gloo would choose. Resolves names. */
void facts_probe_network(struct facts *facts);

/* Whether rank 0 can listen on its MASTER_PORT; if not, facts->port_error says why. */
void facts_probe_port(struct facts *facts);

#endif
