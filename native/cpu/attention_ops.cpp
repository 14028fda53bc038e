// Rotation of queries and keys, writes of the KV cache, and the cutting of attention into tasks. On
// the stream thread.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "cpu/cache_rows.h"
#include "cpu/cpu_backend.h"

namespace inferd::cpu {
namespace {

// Of an op that is run alone: engines ask `refuses` first.
void check_head_dim(const CpuBackend& backend, int32_t head_dim, int32_t value_dim = 0) {
  const std::string refusal =
      backend.refuses({.heads = 1, .kv_heads = 1, .head_dim = head_dim, .value_dim = value_dim});
  if (!refusal.empty()) throw Error(ErrorCode::kUnsupported, refusal);
}

}  // namespace

std::string CpuBackend::refuses(const LayerShape& layer) const {
  const int32_t most = layer.value_dim > 0 ? kMaxLatentDim : kMaxHeadDim;
  const bool fits = layer.head_dim > 0 && layer.head_dim <= most && layer.head_dim % 8 == 0 &&
                    layer.value_dim <= layer.head_dim;
  if (fits || layer.heads == 0) return "";
  return format(
      "%s %d, not a multiple of 8 up to %d",
      layer.value_dim > 0 ? "kv_lora_rank and qk_rope_head_dim together are" : "head_dim is",
      layer.head_dim, most);
}

// Cosines and sines of all tokens of the step, made once for all layers. Angles in double: at
// position 10^6 the float product of position and frequency is off by up to 0.03 radians.
const float* CpuBackend::rope_table(const RopeTable& rope, const StepBatch& batch) {
  const int32_t half = rope.rotary_dim / 2;
  const RopeKey key{step_, rope.inv_freq,        batch.positions, batch.num_tokens,
                    half,  rope.attention_factor};
  for (const RopeValues& made : ropes_)
    if (key == made.key) return made.values.data();
  RopeValues& rope_values = ropes_[next_rope_];
  next_rope_ = (next_rope_ + 1) % ropes_.size();
  std::vector<float>& values = rope_values.values;
  values.resize(std::max(values.size(),
                         static_cast<size_t>(batch.num_tokens) * 2 * static_cast<size_t>(half)));
  over_rows(batch.num_tokens, 64 * half, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      float* cos = values.data() + i * 2 * half;
      for (int32_t j = 0; j < half; ++j) {
        const double angle =
            static_cast<double>(batch.positions[i]) * static_cast<double>(rope.inv_freq[j]);
        cos[j] = static_cast<float>(std::cos(angle) * static_cast<double>(rope.attention_factor));
        cos[half + j] =
            static_cast<float>(std::sin(angle) * static_cast<double>(rope.attention_factor));
      }
    }
  });
  rope_values.key = key;
  return values.data();
}

void CpuBackend::rope_and_cache(const QkvArgs& args, const SlotTables& t, const StepBatch& batch) {
  const TraceScope scope(trace_, "rope_and_cache");
  const KvLayer& kv = args.kv;
  check_head_dim(*this, kv.head_dim);
  const int32_t half = args.rope.rotary_dim / 2;
  const float* table = rope_table(args.rope, batch);
  const int64_t width = int64_t{args.heads + 2 * kv.kv_heads} * kv.head_dim;
  const auto prepare = [&](float* head, const float* norm, const float* cos) {
    if (norm) kernels_.rms_norm(head, head, norm, kv.head_dim, args.norm_eps);
    if (half > 0) kernels_.rotate(head, cos, cos + half, half);
  };
  over_rows(batch.num_tokens, 4 * width, [&](int64_t begin, int64_t end, int) {
    alignas(64) float key[kMaxHeadDim];
    for (int64_t i = begin; i < end; ++i) {
      float* q = args.qkv.as<float>() + i * args.qkv.stride[0];
      const float* k = q + int64_t{args.heads} * kv.head_dim;
      const float* v = k + int64_t{kv.kv_heads} * kv.head_dim;
      const float* cos = table + i * 2 * half;
      const int32_t position = batch.positions[i];
      const int64_t slot = batch.host_rows[batch.token_rows[i]].slot;
      const int64_t block = t.blocks[slot * t.max_blocks + position / kv.block_size];
      for (int32_t h = 0; h < args.heads; ++h)
        prepare(q + int64_t{h} * kv.head_dim, args.q_norm, cos);
      for (int32_t h = 0; h < kv.kv_heads; ++h) {
        const CacheRow to = {block, h, position % kv.block_size};
        std::memcpy(key, k + int64_t{h} * kv.head_dim,
                    static_cast<size_t>(kv.head_dim) * sizeof(float));
        prepare(key, args.k_norm, cos);
        store_row(kernels_, kv, kv.k, to, key, kv.key_scale(h));
        store_row(kernels_, kv, kv.v, to, v + int64_t{h} * kv.head_dim, kv.value_scale(h));
      }
    }
  });
}

// A task = up to kMaxQueries queries: some consecutive tokens of a row times the query heads of one
// kv head.
void CpuBackend::attention(const AttentionArgs& args, const SlotTables& t, const StepBatch& batch) {
  const TraceScope scope(trace_, "attention");
  const KvLayer& kv = args.kv;
  const bool latent = kv.v == nullptr;
  const int32_t value_dim = latent ? args.value_dim : kv.head_dim;
  check_head_dim(*this, kv.head_dim, latent ? value_dim : 0);
  const int32_t group = args.heads / kv.kv_heads;
  const int32_t task_heads = std::min(group, kMaxQueries);
  // The tasks of one run of tokens.
  const int32_t parts = (group + task_heads - 1) / task_heads * kv.kv_heads;
  const int32_t task_tokens = std::max(1, kMaxQueries / task_heads);
  task_offsets_.resize(std::max(task_offsets_.size(), static_cast<size_t>(batch.num_rows) + 1));
  const auto spans = spans_.of({batch.host_rows, static_cast<size_t>(batch.num_rows)}, args.picks);
  int64_t tasks = 0;
  for (size_t r = 0; r < spans.size(); ++r) {
    task_offsets_[r] = tasks;
    tasks += int64_t{(spans[r].end - spans[r].begin + task_tokens - 1) / task_tokens} * parts;
  }
  const CacheKind type = cache_kind(kv.dtype);
  const int64_t bytes = dtype_bytes(kv.dtype);
  const auto run = [&](int64_t task, int worker) {
    const auto ends = task_offsets_.begin() + batch.num_rows;
    const int64_t r =
        std::upper_bound(task_offsets_.begin(), ends, task) - task_offsets_.begin() - 1;
    const PlanRow& row = batch.host_rows[r];
    const TokenSpan& span = spans[static_cast<size_t>(r)];
    const int64_t inside = task - task_offsets_[static_cast<size_t>(r)];
    const auto first_token = span.begin + static_cast<int32_t>(inside / parts) * task_tokens;
    const auto part = static_cast<int32_t>(inside % parts);
    const int32_t kv_head = part % kv.kv_heads, first_head = part / kv.kv_heads * task_heads;
    const int64_t token = batch.row_offsets[r] + first_token;
    const int64_t head = int64_t{kv_head} * group + first_head;
    const int64_t head_offset = kv.offset(0, kv_head, 0);
    const AttentionTask work{
        .q = args.qkv.as<const float>() + token * args.qkv.stride[0] + head * kv.head_dim,
        .q_stride = args.qkv.stride[0],
        .out = args.out.as<float>() + token * args.out.stride[0] + head * value_dim,
        .out_stride = args.out.stride[0],
        .tokens = std::min(task_tokens, span.end - first_token),
        .heads = std::min(task_heads, group - first_head),
        .first_position = batch.positions[token],
        .k = static_cast<const char*>(kv.k) + head_offset,
        .v = latent ? nullptr : static_cast<const char*>(kv.v) + head_offset,
        .block_stride = kv.offset(1, 0, 0) / bytes,
        .blocks = t.blocks + int64_t{row.slot} * t.max_blocks,
        .block_size = kv.block_size,
        .head_dim = kv.head_dim,
        .value_dim = value_dim,
        .scale = args.scale * kv.key_scale(kv_head),
        .softcap = args.softcap,
        .window = args.window,
        .sinks = args.sinks == nullptr ? nullptr : args.sinks + head,
        .row_scales = kv.scale_offset(0, kv_head, 0) - head_offset,
        .value_scale = kv.value_scale(kv_head)};
    if (latent) {
      kernels_.latent_attention[type](work,
                                      static_cast<LatentScratch*>(latent_scratch_.data())[worker]);
    } else {
      kernels_.attention[type](work,
                               static_cast<AttentionScratch*>(attention_scratch_.data())[worker]);
    }
  };
  // Cost of a task from the longest context; last tasks first, since late tokens of a prompt see
  // the most keys.
  const int64_t keys =
      args.window > 0 ? std::min<int64_t>(int64_t{args.window} + task_tokens, batch.max_context)
                      : batch.max_context;
  const int64_t cost = keys * kv.head_dim * (2 + task_heads);
  constexpr int64_t kWorth = 32768;
  pool_.parallel_for(tasks, std::max<int64_t>(1, kWorth / std::max<int64_t>(1, cost)),
                     [&](int64_t begin, int64_t end, int worker) {
                       for (int64_t i = begin; i < end; ++i) run(tasks - 1 - i, worker);
                     });
}

}  // namespace inferd::cpu
