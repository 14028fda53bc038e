// Cache writes and attention: sorts the rows of a batch to the decode and prefill kernels. Inside
// run_step, on its thread.
#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "cuda/attention/rope_kv.h"
#include "cuda/cuda_backend.h"

namespace inferd::cuda {
namespace {

constexpr int32_t kFewestInOne = 8;  // rows from which attention does what rope_kv would

int32_t runs_of(const PlanRow& row, int32_t most_tokens) {
  return (row.count + most_tokens - 1) / most_tokens;
}
bool decodes(const PlanRow& row) { return row.count == 1 || (row.flags & kRowFromDevice) != 0; }

}  // namespace

// A scale is a part of what scores and sums of values are multiplied by, which all heads share.
std::string CudaBackend::refuses_scales(const KvSpec& kv) const {
  const float keys = KvScales::common(kv.scales.keys), values = KvScales::common(kv.scales.values);
  if (kv.arrays == 1 && keys != 1)
    return "keys and values are latents with a scale; set cache.cache_dtype to bf16";
  return keys > 0 && values > 0 ? ""
                                : "keys and values have scales that differ by head; set "
                                  "cache.cache_dtype to bf16";
}

void CudaBackend::forget_batch() {
  row_plan_.batch = nullptr;
  token_slots_of_ = nullptr;
  settled_ = false;
  tiled_places_ = nullptr;
  for (DecodePlan& plan : decode_plans_) plan.window = -1;
}

PagedKv CudaBackend::paged(const KvLayer& kv, const SlotTables& t) const {
  if (kv.dtype != info_.activation && kv.dtype != DType::kF8 && kv.dtype != DType::kI8) {
    throw Error(ErrorCode::kUnsupported,
                "The CUDA backend keeps keys and values in the type of the activations, as fp8 or "
                "as int8.");
  }
  return {.k = kv.k,
          .v = kv.v,
          .type = kv.dtype == DType::kF8   ? KvType::kFloat8
                  : kv.dtype == DType::kI8 ? KvType::kInt8
                                           : KvType::kActivation,
          .block_bytes = kv.block_bytes(),
          .block_tables = t.blocks,
          .max_blocks = t.max_blocks,
          .num_blocks = kv.num_blocks,
          .kv_heads = kv.kv_heads,
          .block_size = kv.block_size,
          .head_dim = kv.head_dim};
}

// gather_tokens leaves them behind; an op that is run alone makes them from the host's rows.
const int32_t* CudaBackend::token_slots(const StepBatch& batch) {
  auto* device = static_cast<int32_t*>(
      token_slots_.get(static_cast<size_t>(batch.num_tokens) * sizeof(int32_t), stream_.get()));
  if (token_slots_of_ == batch.rows) return device;
  auto* staged = current_->staging.take<int32_t>(static_cast<size_t>(batch.num_tokens));
  int32_t* at = staged;
  for (int32_t r = 0; r < batch.num_rows; ++r)
    at = std::fill_n(at, batch.host_rows[r].count, batch.host_rows[r].slot);
  std::fill(at, staged + batch.num_tokens, 0);  // padding
  copy_in(device, staged, static_cast<size_t>(batch.num_tokens) * sizeof(int32_t));
  token_slots_of_ = batch.rows;
  return device;
}

void CudaBackend::rope_and_cache(const QkvArgs& args, const SlotTables& t, const StepBatch& batch) {
  const KvLayer& kv = args.kv;
  const PagedKv cache = paged(kv, t);
  check(rope_kv(half_,
                {.qkv = args.qkv.data,
                 .q_norm = args.q_norm,
                 .k_norm = args.k_norm,
                 .norm_eps = args.norm_eps,
                 .inv_freq = args.rope.inv_freq,
                 .attention_factor = args.rope.attention_factor,
                 .k_cache = kv.k,
                 .v_cache = kv.v,
                 .kv_type = cache.type,
                 .k_scale = kv.key_scale(0),
                 .v_scale = kv.value_scale(0),
                 .block_bytes = cache.block_bytes,
                 .block_tables = t.blocks,
                 .token_slots = token_slots(batch),
                 .positions = batch.positions,
                 .max_blocks = t.max_blocks,
                 .tokens = batch.num_tokens,
                 .heads = args.heads,
                 .kv_heads = kv.kv_heads,
                 .head_dim = kv.head_dim,
                 .rotary_dim = args.rope.rotary_dim,
                 .block_size = kv.block_size},
                launch_settled(settled_)),
        "rope_and_cache");
}

// Not of latents, whose rows the host sorts.
bool CudaBackend::takes_bounded(int32_t tokens, std::span<const KvLayer> kv) const {
  const auto has_values = [](const KvLayer& layer) { return layer.v != nullptr; };
  return tokens <= kMostListedRows && std::all_of(kv.begin(), kv.end(), has_values);
}

// A bounded batch, whose rows the device alone knows: list_rows sorts them there. What is not there
// of a list is padding.
void CudaBackend::list_bounded_rows(const StepBatch& batch) {
  RowPlan& plan = row_plan_;
  const auto rows = static_cast<size_t>(batch.num_rows);
  plan.decode_rows = batch.num_rows;
  plan.num_tiles = most_prefill_tiles(batch.num_rows, batch.num_tokens, plan.tile_tokens);
  const size_t list_bytes = ((2 * rows + 1) * sizeof(int32_t) + 15) / 16 * 16;
  auto* lists = static_cast<int32_t*>(row_lists_.get(
      list_bytes + static_cast<size_t>(plan.num_tiles) * sizeof(PrefillTile), stream_.get()));
  auto* tiles = reinterpret_cast<PrefillTile*>(reinterpret_cast<std::byte*>(lists) + list_bytes);
  check(list_rows({.rows = batch.rows,
                   .row_offsets = batch.row_offsets,
                   .num_rows = batch.num_rows,
                   .tile_tokens = plan.tile_tokens,
                   .decode_tokens = lists,
                   .decode_slots = lists + rows,
                   .tiles = tiles,
                   .num_tiles = lists + 2 * rows},
                  own_launch()),
        "list_rows");
  plan.decode_tokens = lists;
  plan.decode_slots = lists + rows;
  plan.tile_count = lists + 2 * rows;
  plan.tiles = tiles;
}

// Rows of one token decode, and so do rows that start from the device, of which the host does not
// know where they are, in runs of up to run_tokens; the others are cut into tiles, of which those
// without a picked token are left out. A pure decode batch needs nothing from the host, so it can
// be recorded, and so can a bounded one.
const CudaBackend::RowPlan& CudaBackend::plan_rows(const StepBatch& batch, int32_t tile_tokens,
                                                   int32_t run_tokens, const Picks* picks) {
  RowPlan& plan = row_plan_;
  if (plan.batch == batch.rows && plan.tile_tokens == tile_tokens &&
      plan.run_tokens == run_tokens && plan.picks == picks)
    return plan;
  plan = {
      .batch = batch.rows, .tile_tokens = tile_tokens, .picks = picks, .run_tokens = run_tokens};
  if (!batch.bounded && batch.num_tokens == batch.num_rows) {
    plan.decode_rows = batch.num_rows;
    plan.decode_slots = token_slots(batch);
    return plan;
  }
  if (batch.bounded) {
    list_bounded_rows(batch);
    return plan;
  }
  const auto spans = spans_.of({batch.host_rows, static_cast<size_t>(batch.num_rows)}, picks);
  prefill_rows_.clear();
  int32_t first = 0;
  for (int32_t r = 0; r < batch.num_rows; ++r) {
    const PlanRow& row = batch.host_rows[r];
    if (decodes(row)) {
      plan.decode_rows += runs_of(row, run_tokens);
    } else {
      // Whole tiles, so that a token is computed among the same others as without picks.
      const auto [begin, end] = spans[static_cast<size_t>(r)];
      const int32_t skipped = begin / tile_tokens * tile_tokens;
      const int32_t kept = std::min(row.count, (end + tile_tokens - 1) / tile_tokens * tile_tokens);
      if (kept > skipped)
        prefill_rows_.push_back({row.slot, first + skipped, kept - skipped, row.start + skipped});
    }
    first += row.count;
  }
  plan.num_tiles = count_prefill_tiles(prefill_rows_, tile_tokens);
  const auto singles = static_cast<size_t>(plan.decode_rows);
  static_assert(sizeof(DecodeRun) == sizeof(int32_t));
  const size_t list_bytes = (3 * singles * sizeof(int32_t) + 15) / 16 * 16;
  const size_t bytes = list_bytes + static_cast<size_t>(plan.num_tiles) * sizeof(PrefillTile);
  auto* staged = current_->staging.take<std::byte>(bytes);
  auto* lists = reinterpret_cast<int32_t*>(staged);
  auto* runs = reinterpret_cast<DecodeRun*>(lists + 2 * singles);
  size_t i = 0;
  first = 0;
  for (int32_t r = 0; r < batch.num_rows; ++r) {
    const PlanRow& row = batch.host_rows[r];
    const int32_t pieces = decodes(row) ? runs_of(row, run_tokens) : 0;
    for (int32_t piece = 0; piece < pieces; ++piece, ++i) {
      const int32_t begin = row.count * piece / pieces, end = row.count * (piece + 1) / pieces;
      lists[i] = first + begin;
      lists[singles + i] = row.slot;
      runs[i] = {.tokens = static_cast<int16_t>(end - begin), .fresh = static_cast<int16_t>(end)};
      plan.most_tokens = std::max(plan.most_tokens, end - begin);
    }
    first += row.count;
  }
  build_prefill_tiles(
      prefill_rows_, tile_tokens,
      {reinterpret_cast<PrefillTile*>(staged + list_bytes), static_cast<size_t>(plan.num_tiles)});
  auto* device = static_cast<std::byte*>(row_lists_.get(bytes, stream_.get()));
  copy_in(device, staged, bytes);
  plan.decode_tokens = reinterpret_cast<const int32_t*>(device);
  plan.decode_slots = plan.decode_tokens + singles;
  plan.decode_runs = reinterpret_cast<const DecodeRun*>(plan.decode_slots + singles);
  plan.tiles = reinterpret_cast<const PrefillTile*>(device + list_bytes);
  return plan;
}

// Layers of one window and one shape share a plan.
CudaBackend::DecodePlan& CudaBackend::plan_decode(const StepBatch& batch, int32_t window,
                                                  const PagedKv& kv) {
  const int32_t resident = decode_attention_resident(kv.kv_heads, sm_count_);
  const int32_t warps = decode_attention_warps(kv.head_dim, kv.type != KvType::kActivation);
  const auto made = [&](const DecodePlan& p) {
    return p.window == window && p.warps == warps && p.resident == resident;
  };
  size_t free = 0;
  while (free + 1 < decode_plans_.size() && decode_plans_[free].window >= 0) {
    if (made(decode_plans_[free])) return decode_plans_[free];
    ++free;
  }
  DecodePlan& plan = decode_plans_[free];
  if (made(plan)) return plan;
  plan.window = window;
  plan.warps = warps;
  plan.resident = resident;
  plan.settled = false;
  plan.grid = decode_attention_grid(row_plan_.decode_rows, batch.max_context, resident);
  check(plan_decode_attention(
            {.tokens = row_plan_.decode_tokens,
             .slots = row_plan_.decode_slots,
             .runs = row_plan_.decode_runs,
             .positions = batch.positions,
             .rows = row_plan_.decode_rows,
             .window = window,
             .grid = plan.grid,
             .warps = warps,
             .resident = resident,
             .shares = static_cast<DecodeShare*>(plan.shares.get(
                 static_cast<size_t>(plan.grid.blocks * warps) * sizeof(DecodeShare),
                 stream_.get()))},
            stream_.get()),
        "plan_decode_attention");
  return plan;
}

void CudaBackend::attention(const AttentionArgs& args, const SlotTables& t,
                            const StepBatch& batch) {
  if (args.kv.v == nullptr) return attend_latent(args, t, batch);
  attend(args, paged(args.kv, t), batch, {});
}

// One kernel where all rows are of one token; others read keys of this step from the cache. With
// few rows the small kernel of rope_kv gains more by its early start: a step of one row of
// Llama-3-8B took 3.868 ms in one kernel and 3.851 in two on an H200, one of 16 rows 4.352 and
// 4.388.
void CudaBackend::rope_and_attend(const QkvArgs& qkv, const AttentionArgs& args,
                                  const SlotTables& t, const StepBatch& batch) {
  const PagedKv kv = paged(args.kv, t);
  const bool takes_one = qkv.rope.rotary_dim == kv.head_dim &&
                         decode_attention_takes_rope(kv.head_dim, kv.type != KvType::kActivation);
  if (batch.bounded || batch.num_tokens != batch.num_rows || batch.num_rows < kFewestInOne ||
      !takes_one) {
    return Backend::rope_and_attend(qkv, args, t, batch);
  }
  attend(args, kv, batch,
         {.inv_freq = qkv.rope.inv_freq,
          .attention_factor = qkv.rope.attention_factor,
          .q_norm = qkv.q_norm,
          .k_norm = qkv.k_norm,
          .norm_eps = qkv.norm_eps,
          .k_cache = args.kv.k,
          .v_cache = args.kv.v});
}

void CudaBackend::attend(const AttentionArgs& args, const PagedKv& kv, const StepBatch& batch,
                         const DecodeRope& rope) {
  plan_rows(batch, prefill_tile_tokens(args.heads, kv.kv_heads),
            decode_attention_most_tokens(args.heads / kv.kv_heads), args.picks);
  if (row_plan_.num_tiles > 0) prefill_rows(args, kv, batch);
  if (row_plan_.decode_rows > 0) decode_rows(args, kv, batch, rope);
  settled_ = true;
}

void CudaBackend::decode_rows(const AttentionArgs& args, const PagedKv& kv, const StepBatch& batch,
                              const DecodeRope& rope) {
  DecodePlan& plan = plan_decode(batch, args.window, kv);
  const int32_t rows = row_plan_.decode_rows;
  check(decode_attention(
            half_,
            {.q = args.qkv.data,
             .q_stride = args.qkv.stride[0],
             .out = args.out.data,
             .out_stride = args.out.stride[0],
             .kv = kv,
             .shares = static_cast<const DecodeShare*>(plan.shares.data()),
             .rows = rows,
             .grid = plan.grid,
             .heads = args.heads,
             .scale = args.scale * args.kv.key_scale(0),
             .rope = rope,
             .most_tokens = row_plan_.most_tokens,
             .window = args.window,
             .softcap = args.softcap,
             .sinks = args.sinks,
             .value_scale = args.kv.value_scale(0),
             .tickets = static_cast<int32_t*>(tickets_.get(
                 static_cast<size_t>(rows * kv.kv_heads) * sizeof(int32_t), stream_.get())),
             .partials =
                 partials_.get(decode_attention_partial_bytes(plan.grid.blocks, args.heads,
                                                              kv.head_dim, row_plan_.most_tokens),
                               stream_.get())},
            launch_settled(plan.settled)),
        "decode attention");
  plan.settled = true;
}

void CudaBackend::prefill_rows(const AttentionArgs& args, const PagedKv& kv,
                               const StepBatch& batch) {
  const PrefillAttentionParams params{
      .q = args.qkv.data,
      .q_stride = args.qkv.stride[0],
      .out = args.out.data,
      .out_stride = args.out.stride[0],
      .kv = kv,
      .tiles = row_plan_.tiles,
      .num_tiles = row_plan_.num_tiles,
      .num_tokens = batch.num_tokens,
      .heads = args.heads,
      .window = args.window,
      .sm_count = sm_count_,
      .counters = static_cast<int32_t*>(tile_counters_.get(2 * sizeof(int32_t), stream_.get())),
      .scale = args.scale * args.kv.key_scale(0),
      .softcap = args.softcap,
      .sinks = args.sinks,
      .value_scale = args.kv.value_scale(0),
      .tile_count = row_plan_.tile_count};
  if (!prefill_attention_sm90_takes(major_, minor_, kv)) {
    check(prefill_attention(half_, params, stream_.get()), "prefill attention");
    return;
  }
  const auto [maps, fresh] = kv_maps_.try_emplace(kv.k);
  if (fresh) check(encode_kv_maps(half_, kv, maps->second), "describing the KV cache");
  check(prefill_attention_sm90(half_, params, maps->second, stream_.get()), "prefill attention");
}

}  // namespace inferd::cuda
