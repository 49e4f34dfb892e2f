/* SPDX-License-Identifier: Apache-2.0 */
/* Captures a pass on its first use, finds it again by its addresses and shapes, and replays it. */
#include "trainer/model/model_graph.h"

#include <stdlib.h>

#include "common/log.h"

/* What a graph was captured for: its addresses and shapes can't change. */
struct graph_key {
	const float *weights;
	float *grads;
	int accumulate, samples, positions;
	bool tells; /* it has an event where each layer is ready */
};

struct model_graph {
	struct model_graph *next;
	struct graph_key key;
	struct device *device;
	void *graph; /* owned by the device */
	int count;
	int layers[]; /* [count] in the order in which they become ready */
};

static struct graph_key key_of(const struct model *model, const struct batch *batch,
	const struct model_pass *pass)
{
	return (struct graph_key) { model->weights, pass->grads, pass->accumulate != 0, batch->samples,
		batch->positions, pass->ready != NULL };
}

static bool same(const struct graph_key *a, const struct graph_key *b)
{
	return a->weights == b->weights && a->grads == b->grads && a->accumulate == b->accumulate
		&& a->samples == b->samples && a->positions == b->positions && a->tells == b->tells;
}

static struct model_graph *find(const struct model *model, const struct graph_key *key)
{
	struct model_graph *graph = model->graphs;
	while (graph && !same(&graph->key, key))
		graph = graph->next;
	return graph;
}

/* The ready callback while a pass is captured: it only records an event, since nothing is ready
 * before a replay. */
static void keep_layer(void *arg, int layer)
{
	struct model_graph *graph = arg;
	graph->device->capture_event(graph->device, graph->count);
	graph->layers[graph->count++] = layer;
}

/* NULL: nothing was captured, and nothing was executed. */
static struct model_graph *capture(struct model *model, const struct batch *batch,
	const struct model_pass *pass)
{
	struct device *device = model->ops->device;
	int most = tensor_table_layers(&model->table) + 1; /* one more for MODEL_FORWARD_DONE */
	struct model_graph *graph = calloc(1, sizeof *graph + (size_t)most * sizeof graph->layers[0]);
	struct model_pass kept = *pass;
	model_weights_wait *wait = model->wait;
	if (!graph || !device->capture(device, most)) {
		free(graph);
		return NULL;
	}
	kept.ready = pass->ready ? keep_layer : NULL;
	kept.arg = graph;
	graph->device = device;
	model->wait = NULL; /* the weights are waited for before each replay */
	model->methods->run(model, batch, &kept);
	model->wait = wait;
	graph->graph = device->captured(device);
	if (!graph->graph) {
		free(graph);
		return NULL;
	}
	graph->key = key_of(model, batch, pass);
	graph->next = model->graphs;
	model->graphs = graph;
	return graph;
}

void model_graph_run(struct model *model, const struct batch *batch, const struct model_pass *pass)
{
	const struct graph_key key = key_of(model, batch, pass);
	struct device *device = model->ops->device;
	struct model_graph *graph = find(model, &key);
	if (!graph)
		graph = capture(model, batch, pass);
	if (!graph) {
		log_warn("graphs: the passes can't be captured as a CUDA graph here: they are launched one "
				 "by one, as with --cuda-graph off");
		model->use_graphs = false;
		model->graphs_fail = true;
		model->methods->run(model, batch, pass);
		return;
	}
	model_wait_weights(model, 0); /* the layer whose weights come last */
	device->replay(device, graph->graph);
	for (int i = 0; i < graph->count; i++) {
		device->replayed_to(device, i);
		pass->ready(pass->arg, graph->layers[i]);
	}
	device->replayed_to(device, -1);
}

void model_graph_drop(struct model *model)
{
	while (model->graphs) {
		struct model_graph *graph = model->graphs;
		model->graphs = graph->next;
		graph->device->drop_graph(graph->device, graph->graph);
		free(graph);
	}
}
