// Table rows of the ops on slot tables and rows of a step: attributes | inputs -> outputs.
// `rows` are plan rows (slot, start, count, flags); `blocks` block tables [max_slots, max_blocks];
// k and v caches [num_blocks, kv_heads, block_size, head_dim], converted to kv_dtype and back; of
// fp8 and int8 the bytes of the blocks, [num_blocks, KvLayer::block_bytes()].
//
// rope_and_cache: KV rotary_dim factor norm_eps | CACHE inv_freq[rotary_dim / 2] q_norm?[head_dim]
//   k_norm?[head_dim] -> qkv k v
//
// attention: KV scale softcap? window num_picks? | CACHE picks?[num_picks] sinks?[heads] -> out
//   KV = heads kv_heads head_dim block_size num_blocks max_blocks max_slots num_rows kv_dtype
//   CACHE = qkv rows blocks k v k_scales?[kv_heads] v_scales?[kv_heads]
//
// rope_and_attend: what both need | what both need -> out k v
//
// latent_attention: KV nope_dim rotary_dim value_dim factor norm_eps scale window dtype
//   | rows blocks k q latent norm[rank] inv_freq[rotary_dim / 2] keys[heads * rank, nope_dim]
//   values[heads * value_dim, rank] -> out[tokens, heads * value_dim] queries k
//   The ops of core/latent.h one after the other; kv_heads is 1, rank = head_dim - rotary_dim, and
//   the matrices of the heads lie under each other, those of the keys transposed.
//
// sample: TABLE vocab num_samples | TABLES logits[num_samples, vocab] samples[num_samples, 2]
// (slot, 0)
//   -> tokens logprobs ranks top_ids[., 20] top_logprobs[., 20] top_counts history lengths
//   TABLE = max_slots max_len, and max_NAME of each slot list
//   TABLES = tokens lengths prompt_lens sampling, and of each slot list NAME[max_slots, words, max]
//   and num_NAME; sample also masks[max_slots, ceil(vocab / 32)] where a row has a grammar
//
// score: rows vocab top | logits targets[rows] -> as sample, without tokens, history and lengths
//
// apply_slots: TABLE max_blocks num_rows plan_words | TABLES blocks plan rows
//   -> TABLES blocks, and ids positions token_rows of the rows
#include <algorithm>
#include <cstring>
#include <memory>

#include "addon/op_table/op_rows.h"
#include "core/error.h"
#include "engine/plan.h"

namespace inferd {
namespace {

constexpr int64_t kMostTokens = 1 << 20;  // of a step, as the engine's

// The parts of a step batch that the inputs give; owns the offsets.
struct TestBatch {
  StepBatch batch{};
  std::vector<int32_t> offsets{0};
};

TestBatch make_batch(OpTestCall& c) {
  TestBatch t;
  StepBatch& b = t.batch;
  b.num_rows = c.size("num_rows");
  b.host_rows = reinterpret_cast<const PlanRow*>(c.host_ints("rows", 4 * int64_t{b.num_rows}));
  b.rows = reinterpret_cast<const PlanRow*>(c.ints("rows", 4 * int64_t{b.num_rows}));
  for (int32_t r = 0; r < b.num_rows; ++r) {
    const PlanRow& row = b.host_rows[r];
    if (row.slot < 0 || row.slot >= c.size("max_slots") || row.start < 0 || row.count <= 0 ||
        int64_t{row.start} + row.count > INT32_MAX ||
        int64_t{t.offsets.back()} + row.count > kMostTokens) {
      throw Error(ErrorCode::kUsage, format("runOp: row %d is out of range", r));
    }
    t.offsets.push_back(t.offsets.back() + row.count);
    b.max_row_count = std::max(b.max_row_count, row.count);
    b.max_context = std::max(b.max_context, row.start + row.count);
  }
  b.num_tokens = t.offsets.back();
  auto* offsets = c.new_array<int32_t>(b.num_rows + 1);
  c.backend().upload(offsets, t.offsets.data(), t.offsets.size() * sizeof(int32_t));
  b.row_offsets = offsets;
  b.ids = c.new_array<int32_t>(b.num_tokens);
  b.positions = c.new_array<int32_t>(b.num_tokens);
  b.token_rows = c.new_array<int32_t>(b.num_tokens);
  return t;
}

// Positions and rows of the tokens, as gather_tokens fills them.
void fill_positions(OpTestCall& c, TestBatch& t) {
  std::vector<int32_t> positions, rows;
  for (int32_t r = 0; r < t.batch.num_rows; ++r) {
    for (int32_t i = 0; i < t.batch.host_rows[r].count; ++i) {
      positions.push_back(t.batch.host_rows[r].start + i);
      rows.push_back(r);
    }
  }
  c.backend().upload(t.batch.positions, positions.data(), positions.size() * sizeof(int32_t));
  c.backend().upload(t.batch.token_rows, rows.data(), rows.size() * sizeof(int32_t));
}

struct TestKv {
  KvLayer layer;
  std::unique_ptr<KvScales> scales;
  Tensor k, v;
  SlotTables tables{};
};

// The table entries that rows look up; what the others hold is nobody's business.
void check_blocks(OpTestCall& c, const SlotTables& t, const StepBatch& batch, const KvLayer& kv) {
  const int32_t* blocks = c.host_ints("blocks", int64_t{t.max_slots} * t.max_blocks);
  const int32_t window = c.size_or("window", 0);
  for (int32_t r = 0; r < batch.num_rows; ++r) {
    const PlanRow& row = batch.host_rows[r];
    const int32_t oldest = window > 0 ? std::max(0, row.start - window + 1) : 0;
    for (int32_t i = oldest / kv.block_size; i <= (row.start + row.count - 1) / kv.block_size;
         ++i) {
      const int32_t block = blocks[int64_t{row.slot} * t.max_blocks + i];
      if (block >= 0 && block < kv.num_blocks) continue;
      throw Error(ErrorCode::kUsage,
                  format("runOp: block %d of slot %d is %d", i, row.slot, block));
    }
  }
}

TestKv make_kv(OpTestCall& c, const StepBatch& batch, bool one_array = false) {
  TestKv kv;
  const int32_t blocks = c.size("num_blocks"), heads = c.size("kv_heads");
  const int32_t block_size = c.size("block_size"), head_dim = c.size("head_dim");
  const DType dtype = c.cache_dtype("kv_dtype");
  kv.layer = {nullptr, nullptr, dtype, blocks, block_size, heads, head_dim};
  const DType given = dtype_bytes(dtype) == 1 ? DType::kU8 : dtype;
  const int64_t width = kv.layer.block_bytes() / dtype_bytes(dtype);
  kv.k = c.matrix("k", given, blocks, width);
  if (!one_array) kv.v = c.matrix("v", given, blocks, width);
  kv.layer.k = kv.k.data;
  kv.layer.v = kv.v.data;
  if (c.has("k_scales")) {
    kv.scales = std::make_unique<KvScales>(
        KvScales{c.host_floats("k_scales", heads),
                 one_array ? std::vector<float>() : c.host_floats("v_scales", heads)});
    kv.layer.scales = kv.scales.get();
  }
  kv.tables.max_slots = c.size("max_slots");
  kv.tables.max_blocks = c.size("max_blocks");
  const int64_t entries = int64_t{kv.tables.max_slots} * kv.tables.max_blocks;
  kv.tables.blocks = c.ints("blocks", entries);
  if (block_size == 0 || batch.max_context > int64_t{kv.tables.max_blocks} * block_size ||
      heads == 0 || c.size("heads") % heads != 0) {
    throw Error(ErrorCode::kUsage, "runOp: block_size, heads or rows are out of range");
  }
  check_blocks(c, kv.tables, batch, kv.layer);
  return kv;
}

QkvArgs read_qkv(OpTestCall& c, const TestKv& kv, const StepBatch& batch) {
  QkvArgs args;
  args.heads = c.size("heads");
  args.kv = kv.layer;
  args.qkv = c.activations("qkv", batch.num_tokens,
                           int64_t{args.heads + 2 * args.kv.kv_heads} * args.kv.head_dim);
  const int32_t rotary_dim = c.size("rotary_dim");
  if (rotary_dim > args.kv.head_dim || rotary_dim % 2 != 0)
    throw Error(ErrorCode::kUsage, "runOp: rotary_dim is out of range");
  args.rope = {c.floats("inv_freq", rotary_dim / 2), c.number("factor"), rotary_dim};
  args.q_norm = c.has("q_norm") ? c.floats("q_norm", args.kv.head_dim) : nullptr;
  args.k_norm = c.has("k_norm") ? c.floats("k_norm", args.kv.head_dim) : nullptr;
  args.norm_eps = c.number("norm_eps");
  return args;
}

// `picks`: where those of the input of this name are kept.
AttentionArgs read_attention(OpTestCall& c, const TestKv& kv, const StepBatch& batch,
                             const Tensor& qkv, Picks& picks) {
  AttentionArgs args;
  args.heads = c.size("heads");
  args.kv = kv.layer;
  args.qkv = qkv;
  args.out = c.new_activations(batch.num_tokens, int64_t{args.heads} * args.kv.head_dim);
  args.scale = c.number("scale");
  args.softcap = c.number_or("softcap", 0);
  args.window = c.size("window");
  args.sinks = c.has("sinks") ? c.floats("sinks", args.heads) : nullptr;
  if (c.has("picks")) {
    picks = {.rows = c.ints("picks", c.size("num_picks")),
             .host_rows = c.host_ints("picks", c.size("num_picks")),
             .count = c.size("num_picks")};
    for (int32_t i = 0; i < picks.count; ++i) {
      if (picks.host_rows[i] < 0 || picks.host_rows[i] >= batch.num_tokens)
        throw Error(ErrorCode::kUsage, "runOp: picks are out of range");
    }
    args.picks = &picks;
  }
  return args;
}

Napi::Object run_rope_and_cache(OpTestCall& c) {
  TestBatch t = make_batch(c);
  fill_positions(c, t);
  const TestKv kv = make_kv(c, t.batch);
  const QkvArgs args = read_qkv(c, kv, t.batch);
  c.output("qkv", args.qkv);
  c.output("k", kv.k);
  c.output("v", kv.v);
  return c.run([&] { c.backend().rope_and_cache(args, kv.tables, t.batch); });
}

Napi::Object run_attention(OpTestCall& c) {
  TestBatch t = make_batch(c);
  fill_positions(c, t);
  const TestKv kv = make_kv(c, t.batch);
  const int64_t width = int64_t{c.size("heads") + 2 * kv.layer.kv_heads} * kv.layer.head_dim;
  const Tensor qkv = c.activations("qkv", t.batch.num_tokens, width);
  Picks picks;
  const AttentionArgs args = read_attention(c, kv, t.batch, qkv, picks);
  c.output("out", args.out);
  return c.run([&] { c.backend().attention(args, kv.tables, t.batch); });
}

Napi::Object run_rope_and_attend(OpTestCall& c) {
  TestBatch t = make_batch(c);
  fill_positions(c, t);
  const TestKv kv = make_kv(c, t.batch);
  const QkvArgs qkv = read_qkv(c, kv, t.batch);
  Picks picks;
  const AttentionArgs args = read_attention(c, kv, t.batch, qkv.qkv, picks);
  c.output("out", args.out);
  c.output("k", kv.k);
  c.output("v", kv.v);
  return c.run([&] { c.backend().rope_and_attend(qkv, args, kv.tables, t.batch); });
}

// The input `name` [heads * outputs, inputs] as the weight of head_linear.
PackedWeightPtr head_weight(OpTestCall& c, const char* name, int64_t heads, int64_t outputs,
                            int64_t inputs) {
  const DType dtype = c.dtype("dtype");
  const Tensor given = c.matrix(name, dtype, heads * outputs, inputs);
  std::vector<std::byte> host(static_cast<size_t>(given.size() * dtype_bytes(dtype)));
  c.backend().download(host.data(), given.data, host.size());
  PackedWeightPtr weight = c.backend().make_weight(
      {.rows = heads * stacked_rows(outputs), .cols = inputs, .format = c.weight_format("dtype")});
  for (int64_t h = 0; h < heads; ++h) {
    std::byte* from = host.data() + h * outputs * inputs * dtype_bytes(dtype);
    c.backend().fill_weight(*weight, WeightRole::kCodes, h * stacked_rows(outputs),
                            Tensor::matrix(from, dtype, outputs, inputs));
  }
  return weight;
}

Napi::Object run_latent_attention(OpTestCall& c) {
  TestBatch t = make_batch(c);
  fill_positions(c, t);
  const TestKv kv = make_kv(c, t.batch, true);
  const int32_t heads = c.size("heads"), nope = c.size("nope_dim"), values = c.size("value_dim");
  const int32_t rotary = c.size("rotary_dim"), dim = kv.layer.head_dim, rank = dim - rotary;
  if (rank <= 0 || rotary <= 0 || rotary % 2 != 0 || kv.layer.kv_heads != 1 || nope == 0 ||
      values == 0)
    throw Error(ErrorCode::kUsage, "runOp: the sizes of latent attention are out of range");
  const int64_t tokens = t.batch.num_tokens;
  const Tensor q = c.activations("q", tokens, int64_t{heads} * (nope + rotary));
  const Tensor latent = c.activations("latent", tokens, dim);
  const Tensor queries = c.new_activations(tokens, int64_t{heads} * dim);
  const Tensor attended = c.new_activations(tokens, int64_t{heads} * rank);
  const Tensor out = c.new_activations(tokens, int64_t{heads} * values);
  const PackedWeightPtr key_weight = head_weight(c, "keys", heads, rank, nope);
  const PackedWeightPtr value_weight = head_weight(c, "values", heads, values, rank);
  const LatentCacheArgs cache{
      .q = q,
      .latent = latent,
      .queries = queries,
      .norm = c.floats("norm", rank),
      .norm_eps = c.number("norm_eps"),
      .heads = heads,
      .nope_dim = nope,
      .kv = kv.layer,
      .rope = {c.floats("inv_freq", rotary / 2), c.number("factor"), rotary}};
  const AttentionArgs attention{.out = attended,
                                .qkv = queries,
                                .heads = heads,
                                .kv = kv.layer,
                                .value_dim = rank,
                                .scale = c.number("scale"),
                                .window = c.size("window")};
  c.output("out", out);
  c.output("queries", queries);
  c.output("k", kv.k);
  return c.run([&] {
    c.backend().latent_rope_and_cache(cache, kv.tables, t.batch);
    c.backend().head_linear({.out = queries,
                             .x = q,
                             .weight = key_weight.get(),
                             .heads = heads,
                             .outputs = rank,
                             .out_step = dim,
                             .x_step = nope + rotary});
    c.backend().attention(attention, kv.tables, t.batch);
    c.backend().head_linear({.out = out,
                             .x = attended,
                             .weight = value_weight.get(),
                             .heads = heads,
                             .outputs = values,
                             .out_step = values,
                             .x_step = rank});
  });
}

SampleOutputs new_outputs(OpTestCall& c, int64_t n) {
  const SampleOutputs out{.tokens = c.new_array<int32_t>(n),
                          .logprobs = c.new_array<float>(n),
                          .ranks = c.new_array<int32_t>(n),
                          .top_ids = c.new_array<int32_t>(n * kMaxTopLogprobs),
                          .top_logprobs = c.new_array<float>(n * kMaxTopLogprobs),
                          .top_counts = c.new_array<int32_t>(n)};
  c.output_floats("logprobs", out.logprobs, n);
  c.output_ints("ranks", out.ranks, n);
  c.output_ints("top_ids", out.top_ids, n * kMaxTopLogprobs);
  c.output_floats("top_logprobs", out.top_logprobs, n * kMaxTopLogprobs);
  c.output_ints("top_counts", out.top_counts, n);
  return out;
}

SlotTables make_tables(OpTestCall& c) {
  SlotTables t{};
  t.max_slots = c.size("max_slots");
  t.max_len = c.size("max_len");
  const int64_t slots = t.max_slots;
  t.tokens = c.ints("tokens", slots * t.max_len);
  t.lengths = c.indices("lengths", slots, int64_t{t.max_len} + 1);
  t.num_drafts = c.new_array<int32_t>(slots);  // none
  t.prompt_lens = c.indices("prompt_lens", slots, int64_t{t.max_len} + 1);
  t.sampling = reinterpret_cast<SamplingRow*>(
      c.ints("sampling", slots * static_cast<int64_t>(sizeof(SamplingRow) / 4)));
  for (int32_t i = 0; i < kSlotLists; ++i) {
    const SlotListKind& kind = kSlotListKinds[i];
    const std::string name = kind.name;
    const int32_t most = c.size(("max_" + name).c_str());
    t.lists[i] = {.words = c.ints(kind.name, slots * kind.words * most),
                  .counts = c.indices(("num_" + name).c_str(), slots, int64_t{most} + 1),
                  .entry_words = kind.words,
                  .most = most};
  }
  return t;
}

Napi::Object run_sample(OpTestCall& c) {
  SlotTables tables = make_tables(c);
  const auto* sampling = reinterpret_cast<const SamplingRow*>(
      c.host_ints("sampling", tables.max_slots * int64_t{sizeof(SamplingRow) / 4}));
  StepBatch batch{};
  batch.num_samples = c.size("num_samples");
  batch.host_samples =
      reinterpret_cast<const TokenSample*>(c.host_ints("samples", 2 * int64_t{batch.num_samples}));
  batch.samples =
      reinterpret_cast<const TokenSample*>(c.ints("samples", 2 * int64_t{batch.num_samples}));
  bool masked = false;
  for (int32_t i = 0; i < batch.num_samples; ++i) {
    const int32_t slot = batch.host_samples[i].slot;
    if (slot < 0 || slot >= tables.max_slots)
      throw Error(ErrorCode::kUsage, "runOp: a sample's slot is out of range");
    check_sampling(sampling[slot]);
    masked = masked || sampling[slot].grammar != 0;
  }
  const Tensor logits = c.matrix("logits", DType::kF32, batch.num_samples, c.size("vocab"));
  tables.mask_words = (c.size("vocab") + 31) / 32;
  if (masked) {
    tables.masks =
        reinterpret_cast<uint32_t*>(c.ints("masks", int64_t{tables.max_slots} * tables.mask_words));
  }
  const SampleOutputs out = new_outputs(c, batch.num_samples);
  c.output_ints("tokens", out.tokens, batch.num_samples);
  c.output_ints("history", tables.tokens, int64_t{tables.max_slots} * tables.max_len);
  c.output_ints("lengths", tables.lengths, tables.max_slots);
  return c.run([&] { c.backend().sample(logits, tables, batch, out); });
}

Napi::Object run_score(OpTestCall& c) {
  const int32_t rows = c.size("rows"), vocab = c.size("vocab"), top = c.size("top");
  const Tensor logits = c.matrix("logits", DType::kF32, rows, vocab);
  const int32_t* targets = c.indices("targets", rows, vocab);
  const SampleOutputs out = new_outputs(c, rows);
  return c.run([&] { c.backend().score(logits, targets, top, out); });
}

// Backends take a plan as the engine's checker left it: nothing outside of the tables.
void check_plan(std::span<const int32_t> words, const SlotTables& t) {
  int64_t at = sizeof(PlanHeader) / 4;
  const auto left = [&] { return static_cast<int64_t>(words.size()) - at; };
  const auto inside = [](int64_t value, int64_t limit) { return value >= 0 && value < limit; };
  bool good = left() >= 0;
  PlanHeader header{};
  if (good) std::memcpy(&header, words.data(), sizeof header);
  const auto skip = [&](int64_t count) {
    good = good && count >= 0 && count <= left();
    if (good) at += count;
  };
  skip(header.num_freed);
  // As far as apply_slots reads.
  for (int32_t i = 0; good && i < header.num_new_slots; ++i) {
    NewSlotFixed n{};
    if (left() >= int64_t{sizeof n / 4}) std::memcpy(&n, words.data() + at, sizeof n);
    skip(sizeof n / 4);
    good = good && inside(n.slot, t.max_slots) && n.fork_of < t.max_slots &&
           inside(n.num_tokens, int64_t{t.max_len} + 1);
    for (int32_t list = 0; list < kSlotLists; ++list)
      good = good && inside(n.list_counts[list], int64_t{t.lists[list].most} + 1);
    if (good) skip(new_slot_words(n) - int64_t{sizeof n / 4});
  }
  for (int32_t i = 0; good && i < header.num_block_sets; ++i) {
    good = left() >= 3 && inside(words[static_cast<size_t>(at)], t.max_slots) &&
           inside(words[static_cast<size_t>(at) + 1], t.max_blocks);
    skip(3);
  }
  if (!good) throw Error(ErrorCode::kUsage, "runOp: the plan does not fit its words or the tables");
}

Napi::Object run_apply_slots(OpTestCall& c) {
  SlotTables t = make_tables(c);
  t.max_blocks = c.size("max_blocks");
  t.blocks = c.ints("blocks", int64_t{t.max_slots} * t.max_blocks);
  const int32_t words = c.size("plan_words");
  const int32_t* plan = c.host_ints("plan", words);
  check_plan({plan, static_cast<size_t>(words)}, t);
  TestBatch batch = make_batch(c);
  if (batch.batch.max_context > t.max_len)
    throw Error(ErrorCode::kUsage, "runOp: a row ends behind the histories");
  const int64_t slots = t.max_slots;
  c.output_ints("tokens", t.tokens, slots * t.max_len);
  c.output_ints("lengths", t.lengths, slots);
  c.output_ints("prompt_lens", t.prompt_lens, slots);
  c.output_ints("sampling", reinterpret_cast<int32_t*>(t.sampling),
                slots * static_cast<int64_t>(sizeof(SamplingRow) / 4));
  for (int32_t i = 0; i < kSlotLists; ++i) {
    const SlotList& list = t.lists[i];
    const std::string name = kSlotListKinds[i].name;
    c.output_ints(name.c_str(), list.words, slots * list.entry_words * list.most);
    c.output_ints(("num_" + name).c_str(), list.counts, slots);
  }
  c.output_ints("blocks", t.blocks, slots * t.max_blocks);
  c.output_ints("ids", batch.batch.ids, batch.batch.num_tokens);
  c.output_ints("positions", batch.batch.positions, batch.batch.num_tokens);
  c.output_ints("token_rows", batch.batch.token_rows, batch.batch.num_tokens);
  return c.run([&] {
    c.backend().apply_slots(t, plan);
    c.backend().gather_tokens(t, batch.batch);
  });
}

constexpr OpTest kTests[] = {
    {"rope_and_cache", run_rope_and_cache},
    {"attention", run_attention},
    {"rope_and_attend", run_rope_and_attend},
    {"latent_attention", run_latent_attention},
    {"sample", run_sample},
    {"score", run_score},
    {"apply_slots", run_apply_slots},
};

}  // namespace

std::span<const OpTest> step_op_tests() { return kTests; }

}  // namespace inferd
