/* SPDX-License-Identifier: Apache-2.0 */
/* Builds and runs the two graphs of cuDNN's attention with its frontend. cuDNN is loaded at run
 * time, since programs must start without it. */
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

extern "C" {
#include "trainer/cuda/host/attention_cudnn.h"
}

#include <cmath>
#include <cstdio>
#include <dlfcn.h>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>

namespace cudnn_frontend
{
void *cudnn_dlhandle = nullptr; /* the frontend looks up cuDNN's functions here */
}

namespace fe = cudnn_frontend;
using tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

#define SONAME "libcudnn.so.9"

/* The tensors' numbers in a plan. */
enum { Q = 1, K, V, Y, LSE, DY, DQ, DK, DV };

struct attention_cudnn {
	cudnnHandle_t handle = nullptr;
	int64_t B, T, C, H;
	fe::graph::Graph forward, backward;
	int64_t workspace = 0;
	std::string text;
};

/* ---- errors ---- */

static int told(const fe::error_t &error, const char *call, struct err *err)
{
	return error.is_good() ? 0
						   : err_set(err, "cudnn: couldn't run %s: %s (%d)", call,
							   error.err_msg.c_str(), (int)error.code);
}

static int told(cudnnStatus_t status, const char *call, struct err *err)
{
	return status == CUDNN_STATUS_SUCCESS ? 0
										  : err_set(err, "cudnn: couldn't run %s: %s (%d)", call,
											  fe::detail::get_error_string(status), (int)status);
}

#define CHECK(call) \
	do { \
		if (told(call, #call, err) < 0) \
			return -1; \
	} while (0)

/* The frontend throws where the library lacks a function, and C can't catch that. */
template <typename F> static int guarded(struct err *err, const F &f)
{
	try {
		return f();
	} catch (const std::exception &e) {
		return err_set(err, "cudnn: %s", e.what());
	}
}

/* ---- graphs ---- */

/* Describes the rows of the heads: [B,H,T,D] inside a matrix [B·T, row], from its column's address
 * on. */
static fe::graph::Tensor_attributes rows(const attention_cudnn &a, const char *name, int uid,
	int64_t row)
{
	int64_t D = a.C / a.H;
	return fe::graph::Tensor_attributes()
		.set_name(name)
		.set_uid(uid)
		.set_dim({ a.B, a.H, a.T, D })
		.set_stride({ a.T * row, D, row, 1 });
}

static fe::graph::Tensor_attributes sums(const attention_cudnn &a)
{
	return fe::graph::Tensor_attributes()
		.set_name("lse")
		.set_uid(LSE)
		.set_dim({ a.B, a.H, a.T, 1 })
		.set_stride({ a.H * a.T, a.T, 1, 1 })
		.set_data_type(fe::DataType_t::FLOAT);
}

static void set_types(fe::graph::Graph &graph)
{
	graph.set_io_data_type(fe::DataType_t::BFLOAT16)
		.set_intermediate_data_type(fe::DataType_t::FLOAT)
		.set_compute_data_type(fe::DataType_t::FLOAT);
}

static void set_output(const tensor &out, const fe::graph::Tensor_attributes &like)
{
	out->set_output(true)
		.set_uid(like.get_uid())
		.set_dim(like.get_dim())
		.set_stride(like.get_stride());
}

static float scale_of(const attention_cudnn &a)
{
	return 1.0f / std::sqrt((float)(a.C / a.H));
}

static void describe_forward(attention_cudnn &a)
{
	fe::graph::Graph &graph = a.forward;
	set_types(graph);
	auto q = graph.tensor(rows(a, "q", Q, 3 * a.C)), k = graph.tensor(rows(a, "k", K, 3 * a.C)),
		 v = graph.tensor(rows(a, "v", V, 3 * a.C));
	auto options = fe::graph::SDPA_attributes()
					   .set_name("attention")
					   .set_generate_stats(true)
					   .set_attn_scale(scale_of(a))
					   .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
					   .set_diagonal_band_right_bound(0);
	auto [y, lse] = graph.sdpa(q, k, v, options);
	set_output(y, rows(a, "y", Y, a.C));
	set_output(lse, sums(a));
	lse->set_data_type(fe::DataType_t::FLOAT);
}

static void describe_backward(attention_cudnn &a)
{
	fe::graph::Graph &graph = a.backward;
	set_types(graph);
	auto q = graph.tensor(rows(a, "q", Q, 3 * a.C)), k = graph.tensor(rows(a, "k", K, 3 * a.C)),
		 v = graph.tensor(rows(a, "v", V, 3 * a.C));
	auto y = graph.tensor(rows(a, "y", Y, a.C)), dy = graph.tensor(rows(a, "dy", DY, a.C)),
		 lse = graph.tensor(sums(a));
	auto options = fe::graph::SDPA_backward_attributes()
					   .set_name("attention_backward")
					   .set_attn_scale(scale_of(a))
					   .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
					   .set_diagonal_band_right_bound(0)
					   .set_deterministic_algorithm(true);
	auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, y, dy, lse, options);
	set_output(dq, rows(a, "dq", DQ, 3 * a.C));
	set_output(dk, rows(a, "dk", DK, 3 * a.C));
	set_output(dv, rows(a, "dv", DV, 3 * a.C));
}

/* Builds the first supported plan of the heuristics; leaves out plans that are marked as
 * nondeterministic. */
static int build(attention_cudnn &a, fe::graph::Graph &graph, const char *pass, struct err *err)
{
	int64_t bytes = 0;
	std::string name;
	CHECK(graph.validate());
	CHECK(graph.build_operation_graph(a.handle));
	CHECK(graph.create_execution_plans({ fe::HeurMode_t::A }));
	graph.deselect_numeric_notes({ fe::NumericalNote_t::NONDETERMINISTIC });
	CHECK(graph.check_support(a.handle));
	CHECK(graph.build_plans(a.handle, fe::BuildPlanPolicy_t::HEURISTICS_CHOICE));
	CHECK(graph.get_workspace_size(bytes));
	CHECK(graph.get_plan_name(name));
	a.workspace = bytes > a.workspace ? bytes : a.workspace;
	a.text += std::string(", ") + pass + " " + name;
	return 0;
}

/* ---- life ---- */

static int load(struct err *err)
{
	if (!fe::cudnn_dlhandle)
		fe::cudnn_dlhandle = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
	return fe::cudnn_dlhandle ? 0
							  : err_fail(err, EXIT_USAGE,
								  "cudnn: couldn't load cuDNN: %s: install it on this node, put "
								  "its folder into LD_LIBRARY_PATH, or leave --attention cudnn out",
								  dlerror());
}

static int begin(attention_cudnn &a, struct err *err)
{
	CHECK(fe::detail::create_handle(&a.handle));
	a.text = "cuDNN " + fe::detail::get_backend_version_string();
	describe_forward(a);
	describe_backward(a);
	return build(a, a.forward, "forward", err) < 0 || build(a, a.backward, "backward", err) < 0 ? -1
																								: 0;
}

extern "C" struct attention_cudnn *attention_cudnn_create(int B, int T, int C, int H,
	struct err *err)
{
	struct err why = {};
	if (load(err) < 0)
		return nullptr;
	attention_cudnn *a = new attention_cudnn { nullptr, B, T, C, H, {}, {}, 0, {} };
	if (guarded(&why, [&] { return begin(*a, &why); }) == 0)
		return a;
	if (a->handle)
		err_fail(err, EXIT_USAGE,
			"%s: cuDNN has no deterministic attention for %d samples of %d positions in %d heads "
			"of %d columns here: leave --attention cudnn out",
			why.text, B, T, H, C / H);
	else
		err_fail(err, EXIT_USAGE, "%s: leave --attention cudnn out", why.text);
	attention_cudnn_destroy(a);
	return nullptr;
}

extern "C" void attention_cudnn_destroy(struct attention_cudnn *a)
{
	struct err unused = {};
	if (a && a->handle)
		guarded(&unused, [&] { return (int)fe::detail::destroy_handle(a->handle); });
	delete a;
}

extern "C" size_t attention_cudnn_workspace(const struct attention_cudnn *a)
{
	return (size_t)a->workspace;
}

extern "C" const char *attention_cudnn_text(const struct attention_cudnn *a)
{
	return a->text.c_str();
}

/* ---- runs ---- */

using addresses = std::unordered_map<fe::graph::Tensor_attributes::uid_t, void *>;

extern "C" bool attention_cudnn_is_for(const struct attention_cudnn *a, int B, int T, int C, int H)
{
	return a->B == B && a->T == T && a->C == C && a->H == H;
}

static int fits(const attention_cudnn &a, int B, int T, int C, int H, struct err *err)
{
	return attention_cudnn_is_for(&a, B, T, C, H)
		? 0
		: err_set(err,
			"cudnn: the attention was made for %lld samples of %lld positions, and not for %d of "
			"%d",
			(long long)a.B, (long long)a.T, B, T);
}

static int run(attention_cudnn &a, fe::graph::Graph &graph, addresses &at, void *workspace,
	void *stream, struct err *err)
{
	CHECK(fe::detail::set_stream(a.handle, (cudaStream_t)stream));
	CHECK(graph.execute(a.handle, at, workspace));
	return 0;
}

/* An address in a matrix of bf16, this many columns further. */
static void *part(const void *matrix, int64_t columns)
{
	return (char *)const_cast<void *>(matrix) + 2 * columns;
}

extern "C" int attention_cudnn_forward(struct attention_cudnn *a, void *y, float *lse,
	const void *qkv, int B, int T, int C, int H, void *workspace, void *stream, struct err *err)
{
	addresses at = { { Q, part(qkv, 0) }, { K, part(qkv, a->C) }, { V, part(qkv, 2 * a->C) },
		{ Y, y }, { LSE, lse } };
	if (fits(*a, B, T, C, H, err) < 0)
		return -1;
	return guarded(err, [&] { return run(*a, a->forward, at, workspace, stream, err); });
}

extern "C" int attention_cudnn_backward(struct attention_cudnn *a, void *dqkv, const void *dy,
	const void *qkv, const void *y, const float *lse, int B, int T, int C, int H, void *workspace,
	void *stream, struct err *err)
{
	addresses at = { { Q, part(qkv, 0) }, { K, part(qkv, a->C) }, { V, part(qkv, 2 * a->C) },
		{ Y, part(y, 0) }, { DY, part(dy, 0) }, { LSE, const_cast<float *>(lse) },
		{ DQ, part(dqkv, 0) }, { DK, part(dqkv, a->C) }, { DV, part(dqkv, 2 * a->C) } };
	if (fits(*a, B, T, C, H, err) < 0)
		return -1;
	return guarded(err, [&] { return run(*a, a->backward, at, workspace, stream, err); });
}
