/* SPDX-License-Identifier: Apache-2.0 */
/* A microbatch's forward and backward pass as one graph of the ops': captured once for each arena
 * of gradients, and replayed. Graphs hold computing only. Where a pass tells that gradients are
 * ready, the graph has an event, and who waits for it does so outside. */
#ifndef MUSTER_MODEL_GRAPH_H
#define MUSTER_MODEL_GRAPH_H

#include "trainer/model/model_kind.h"

struct model_graph;

/* What methods->run does. `batch` lies where the model puts all of them. Where nothing can be
 * captured it runs op by op. */
void model_graph_run(struct model *model, const struct batch *batch, const struct model_pass *pass);

/* All of them. Those that were replayed last may still run. */
void model_graph_drop(struct model *model);

#endif
