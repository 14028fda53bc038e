// Latent attention (core/latent.h) as launches: products of each head, the cache, attention. Inside
// run_step, on its thread. Every launch follows from the plan alone, so steps can be recorded.
#include "core/error.h"
#include "cuda/cuda_backend.h"
#include "cuda/latent/head_linear.h"
#include "cuda/latent/latent_attention.h"
#include "cuda/latent/latent_cache.h"

namespace inferd::cuda {

void CudaBackend::head_linear(const HeadLinearArgs& args) {
  const auto& weight = static_cast<const CudaWeight&>(*args.weight);
  const int64_t head_rows = stacked_rows(args.outputs);
  if (weight.rows < (args.heads - 1) * head_rows + args.outputs ||
      weight.dtype() != info_.activation) {
    throw Error(ErrorCode::kUsage,
                format("head_linear of %d heads got a weight of %lld rows as %s", args.heads,
                       static_cast<long long>(weight.rows), format_name(weight.format).c_str()));
  }
  check(cuda::head_linear(half_,
                          {.out = args.out.data,
                           .out_stride = args.out.stride[0],
                           .out_step = args.out_step,
                           .x = args.x.data,
                           .x_stride = args.x.stride[0],
                           .x_step = args.x_step,
                           .weight = weight.memory.get(),
                           .head_rows = head_rows,
                           .tokens = static_cast<int32_t>(args.x.rows()),
                           .heads = args.heads,
                           .outputs = static_cast<int32_t>(args.outputs),
                           .inputs = static_cast<int32_t>(weight.cols)},
                          launch()),
        "head_linear");
}

void CudaBackend::latent_rope_and_cache(const LatentCacheArgs& args, const SlotTables& t,
                                        const StepBatch& batch) {
  check(latent_cache(half_,
                     {.q = args.q.data,
                      .q_stride = args.q.stride[0],
                      .latent = args.latent.data,
                      .latent_stride = args.latent.stride[0],
                      .queries = args.queries.data,
                      .norm = args.norm,
                      .norm_eps = args.norm_eps,
                      .inv_freq = args.rope.inv_freq,
                      .attention_factor = args.rope.attention_factor,
                      .kv = paged(args.kv, t),
                      .cache = args.kv.k,
                      .token_slots = token_slots(batch),
                      .positions = batch.positions,
                      .tokens = batch.num_tokens,
                      .heads = args.heads,
                      .nope_dim = args.nope_dim,
                      .rotary_dim = args.rope.rotary_dim},
                     launch()),
        "latent_rope_and_cache");
}

// All tokens alike, those of prompts and those that decode; `picks` may be left alone.
void CudaBackend::attend_latent(const AttentionArgs& args, const SlotTables& t,
                                const StepBatch& batch) {
  LatentAttentionParams params{.q = args.qkv.data,
                               .out = args.out.data,
                               .kv = paged(args.kv, t),
                               .token_slots = token_slots(batch),
                               .positions = batch.positions,
                               .tokens = batch.num_tokens,
                               .heads = args.heads,
                               .value_dim = args.value_dim,
                               .window = args.window,
                               .splits = 1,
                               .scale = args.scale,
                               .partials = nullptr};
  params.splits = latent_attention_splits(params, batch.max_context, sm_count_);
  if (params.splits > 1) {
    const size_t bytes = latent_attention_partial_bytes(args.value_dim, args.heads, sm_count_);
    params.partials = static_cast<float*>(partials_.get(bytes, stream_.get()));
  }
  check(latent_attention(half_, params, launch()), "latent attention");
}

}  // namespace inferd::cuda
