// What latent attention does beside attention (core/latent.h): products of each head by a matrix of
// its own, rotation, and writes of the cache. On the stream thread.
#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "cpu/cache_rows.h"
#include "cpu/cpu_backend.h"

namespace inferd::cpu {

// A task = some rows of one head. Its panels are few, so rows are packed where they are multiplied.
void CpuBackend::head_linear(const HeadLinearArgs& args) {
  const TraceScope scope(trace_, "head_linear");
  const auto& w = static_cast<const CpuWeight&>(*args.weight);
  const int64_t head_rows = stacked_rows(args.outputs);
  if (w.in_blocks() || w.rows < (args.heads - 1) * head_rows + args.outputs ||
      w.cols > kHeadLinearFloats) {
    throw Error(ErrorCode::kUsage,
                format("head_linear of %d heads got a weight of %lld x %lld", args.heads,
                       static_cast<long long>(w.rows), static_cast<long long>(w.cols)));
  }
  const int64_t tile = kernels_.tile_rows, rows = args.x.rows();
  const int64_t task_rows = std::max<int64_t>(1, kHeadLinearFloats / w.cols / tile) * tile;
  if (task_rows * w.cols > kHeadLinearFloats && rows > 1)
    throw Error(ErrorCode::kUsage, "head_linear got inputs that are too wide");
  const int64_t parts = (rows + task_rows - 1) / task_rows;
  const int64_t head_panels = head_rows / w.panel_cols;
  const int64_t used_panels = (args.outputs + w.panel_cols - 1) / w.panel_cols;
  const auto kernel = kernels_.gemm[w.kind];
  const auto run = [&](int64_t task, int worker) {
    const int64_t head = task / parts, first = task % parts * task_rows;
    const int64_t count = std::min(task_rows, rows - first);
    const float* x = args.x.as<float>() + first * args.x.stride[0] + head * args.x_step;
    float* scratch = static_cast<float*>(head_rows_.data()) + worker * kHeadLinearFloats;
    for (int64_t row = 0; count > 1 && row < count; row += tile) {
      pack_tile(scratch + row * w.cols, x + row * args.x.stride[0], args.x.stride[0],
                std::min(tile, count - row), w.cols);
    }
    kernel(
        {.panels = static_cast<const char*>(w.memory.data()) + head * head_panels * w.panel_bytes,
         .panel_bytes = w.panel_bytes,
         .first_panel = 0,
         .num_panels = used_panels,
         .packed = count > 1 ? scratch : x,
         .rows = count,
         .cols = w.cols,
         .out = args.out.as<float>() + first * args.out.stride[0] + head * args.out_step,
         .out_stride = args.out.stride[0],
         .outs = args.outputs,
         .bias = nullptr});
  };
  const int64_t cost = std::min(rows, task_rows) * w.cols * args.outputs;
  constexpr int64_t kWorth = 128 << 10;
  pool_.parallel_for(args.heads * parts, std::max<int64_t>(1, kWorth / std::max<int64_t>(1, cost)),
                     [&](int64_t begin, int64_t end, int worker) {
                       for (int64_t i = begin; i < end; ++i) run(i, worker);
                     });
}

void CpuBackend::latent_rope_and_cache(const LatentCacheArgs& args, const SlotTables& t,
                                       const StepBatch& batch) {
  const TraceScope scope(trace_, "latent_rope_and_cache");
  const KvLayer& kv = args.kv;
  const int32_t rank = args.rank(), rotary = args.rope.rotary_dim, half = rotary / 2;
  const float* table = rope_table(args.rope, batch);
  const int64_t query_dim = args.nope_dim + rotary;
  over_rows(batch.num_tokens, 4 * (args.heads * rotary + kv.head_dim),
            [&](int64_t begin, int64_t end, int) {
              for (int64_t i = begin; i < end; ++i) {
                const float* cos = table + i * 2 * half;
                const float* q = args.q.as<const float>() + i * args.q.stride[0] + args.nope_dim;
                float* to = args.queries.as<float>() + i * args.queries.stride[0] + rank;
                for (int32_t h = 0; h < args.heads; ++h, q += query_dim, to += kv.head_dim) {
                  std::copy_n(q, rotary, to);
                  kernels_.rotate(to, cos, cos + half, half);
                }
                float* latent = args.latent.as<float>() + i * args.latent.stride[0];
                kernels_.rms_norm(latent, latent, args.norm, rank, args.norm_eps);
                kernels_.rotate(latent + rank, cos, cos + half, half);
                const int32_t position = batch.positions[i];
                const int64_t slot = batch.host_rows[batch.token_rows[i]].slot;
                const int64_t block = t.blocks[slot * t.max_blocks + position / kv.block_size];
                store_row(kernels_, kv, kv.k, {block, 0, position % kv.block_size}, latent,
                          kv.key_scale(0));
              }
            });
}

}  // namespace inferd::cpu
