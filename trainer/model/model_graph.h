/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a microbatch's forward and backward pass as one graph of the device's, captured once for
 * each arena of gradients and then replayed, which saves the launch of each op. Graphs hold only
 * computing. Where a pass tells that gradients are ready, the graph has an event, and work that
 * waits for it does so outside the graph. */
#ifndef MUSTER_MODEL_GRAPH_H
#define MUSTER_MODEL_GRAPH_H

#include "trainer/model/model_kind.h"

struct model_graph;

/* Does what methods->run does. `batch` must lie in the model's own place for batches, since a graph
 * keeps its address. Where nothing can be captured, it runs op by op. */
void model_graph_run(struct model *model, const struct batch *batch, const struct model_pass *pass);

/* Drops all graphs. Those that were replayed last may still run. */
void model_graph_drop(struct model *model);

#endif
