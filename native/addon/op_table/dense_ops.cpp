// Table rows of the ops on activations: attributes | inputs -> outputs.
// Shapes are [rows, cols]; types in attributes are "f32", "f16" or "bf16".
//
// embed: rows vocab cols dtype scale? | table[vocab, cols] ids[rows] -> out[rows, cols]
//
// embed_weight: rows vocab cols dtype source_dtype? parts? scale? first_id? | weight[vocab, cols]
//   ids[rows] -> out[rows, cols]
//   The weight as that of linear. An id that is not in first_id..first_id+vocab-1 gives zeros.
//
// rms_norm: rows cols eps | x weight[cols] -> out
//
// rms_norm_columns: rows cols first count eps | x[rows, cols] weight[count] -> x
//   Of columns [first, first + count), in place.
//
// add_rms_norm: rows cols eps | inout x weight[cols] -> out inout
//
// add: rows cols scale? | inout x -> inout
//
// linear: rows cols outs dtype source_dtype? parts? out_f32? | x weight[outs, cols] bias?[outs]
//   -> out
//   The weight is given as source_dtype and filled in `parts` calls of about equal size. dtype may
//   also be "int8" or "int4", or, where a device keeps rows of codes, "fp8" (blocks of 128 x 128),
//   "fp8_rows", "fp8_groups", of 1 x 128, "int8_rows", or "fp4" (source_dtype is then f32 when
//   absent). out_f32: the result is float32, as logits are.
//
// linear_add: as linear | inout[rows, outs] too -> inout
//
// linear_gated: as linear, gate?, with weight[2 outs, cols] bias?[2 outs] -> out[rows, outs]
//   gate: "silu", as when absent, "gelu_tanh" or "clamped_swiglu".
//
// All of these: adapter_places?, with adapter_rank, sections? | places[rows],
// adapter_a[adapter_places,
//   sections, rank, cols] and adapter_b[adapter_places, products, rank] too. The sections have
//   equally many outputs. Row i adds what the adapter places[i] gives, -1: none.
// norm_linear, norm_linear_gated: as linear and linear_gated, eps | norm[cols] too
//   The norm's weight is folded into the linear's where the backend does that, as models do.
//
// quantize: rows cols dtype | weight[rows, cols] -> out[rows, cols]
//   What a weight kept as "int8" or "int4" stands for, after the quantizer of core/quant.h.
//
// gated_mul: rows cols gate? | gate_up[rows, 2 cols] -> out[rows, cols]
//
// cap_logits: rows cols scale cap | logits -> logits
//
// gather_rows: rows cols count | x ids[count] -> out[count, cols]
//
// sum_rows: rows cols count sums | x sums[sums, cols] entries[4 count] -> sums
//   Of each entry the row of `sums`, the first row of x, the number of them, and 1 to begin anew.
//
// copy_blocks: num_blocks kv_heads block_size head_dim kv_dtype count | k v pairs[2 count] -> k v
//
// swap_blocks: num_blocks kv_heads block_size head_dim kv_dtype count swap_blocks urgent
//              | k v outs[2 count] ins[2 count] -> k v
//   Swaps out to a host pool of swap_blocks blocks, the first `urgent` pairs before the rest, and
//   then in.
//
// Here kv_dtype may also be "int8" or "fp8": k and v are then whole blocks as they lie in memory,
// scales included, given as float32 words.
#include <algorithm>

#include "addon/op_table/op_rows.h"
#include "core/error.h"
#include "core/memory/device_buffer.h"
#include "core/quant.h"

namespace inferd {
namespace {

Napi::Object run_embed(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols");
  const int32_t vocab = c.size("vocab");
  const Tensor table = c.matrix("table", c.dtype("dtype"), vocab, cols);
  const int32_t* ids = c.indices("ids", rows, vocab);
  const Tensor out = c.new_activations(rows, cols);
  c.output("out", out);
  const float scale = c.number_or("scale", 1);
  return c.run([&] { c.backend().embed(out, table, 0, ids, scale); });
}

Napi::Object run_rms_norm(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols");
  const Tensor x = c.activations("x", rows, cols), out = c.new_activations(rows, cols);
  const float* weight = c.floats("weight", cols);
  const float eps = c.number("eps");
  c.output("out", out);
  return c.run([&] { c.backend().rms_norm(out, x, weight, eps); });
}

Napi::Object run_rms_norm_columns(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols");
  const int32_t first = c.size("first"), count = c.size("count");
  if (int64_t{first} + count > cols) throw Error(ErrorCode::kUsage, "runOp: columns out of range");
  const Tensor x = c.activations("x", rows, cols), part = columns(x, first, count);
  const float* weight = c.floats("weight", count);
  const float eps = c.number("eps");
  c.output("x", x);
  return c.run([&] { c.backend().rms_norm(part, part, weight, eps); });
}

Napi::Object run_add_rms_norm(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols");
  const Tensor inout = c.activations("inout", rows, cols), x = c.activations("x", rows, cols);
  const Tensor out = c.new_activations(rows, cols);
  const float* weight = c.floats("weight", cols);
  const float eps = c.number("eps");
  c.output("out", out);
  c.output("inout", inout);
  return c.run([&] { c.backend().add_rms_norm(out, inout, x, weight, eps); });
}

Napi::Object run_add(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols");
  const Tensor inout = c.activations("inout", rows, cols), x = c.activations("x", rows, cols);
  const float scale = c.number_or("scale", 1);
  c.output("inout", inout);
  return c.run([&] { c.backend().add(inout, x, scale); });
}

// Fills a weight from host rows that lie at an odd address, as they may in a checkpoint.
PackedWeightPtr fill(OpTestCall& c, const WeightSpec& spec) {
  PackedWeightPtr weight = c.backend().make_weight(spec);
  const int64_t outs = spec.rows, cols = spec.cols;
  if (c.noise() && !c.has("weight") && c.fill_noise(*weight)) return weight;
  const DType stored = c.has_attr("source_dtype") ? c.dtype("source_dtype")
                       : spec.format.scaled       ? DType::kF32
                                                  : c.dtype("dtype");
  const Tensor device = c.matrix("weight", stored, outs, cols);
  const int64_t row_bytes = cols * dtype_bytes(stored);
  std::vector<std::byte> host(static_cast<size_t>(outs * row_bytes) + 1);
  c.backend().download(host.data() + 1, device.data, static_cast<size_t>(outs * row_bytes));
  const int32_t parts = c.size_or("parts", 1);
  int64_t row = 0;
  for (int64_t p = 1; p <= parts; ++p) {
    const int64_t end = outs * p / parts;
    c.backend().fill_weight(
        *weight, WeightRole::kCodes, row,
        Tensor::matrix(host.data() + 1 + row * row_bytes, stored, end - row, cols));
    row = end;
  }
  return weight;
}

Napi::Object run_embed_weight(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols");
  const PackedWeightPtr table = fill(c, {.rows = c.size("vocab"),
                                         .cols = cols,
                                         .format = c.weight_format("dtype"),
                                         .looked_up = true});
  if (!c.backend().embeds(table->format))
    throw Error(ErrorCode::kUsage, "runOp: rows of this format are not looked up");
  const int32_t* ids = c.ints("ids", rows);
  const Tensor out = c.new_activations(rows, cols);
  c.output("out", out);
  const float scale = c.number_or("scale", 1);
  const int32_t first_id = c.size_or("first_id", 0);
  return c.run([&] { c.backend().embed_weight(out, *table, first_id, ids, scale); });
}

// What rows use which adapter, and the places that hold them.
struct PlacedAdapters {
  AdapterBankPtr bank;
  std::vector<AdapterImagePtr> images;
  std::vector<AdapterRun> runs;
  AdapterRows rows;
};

std::vector<float> on_host(OpTestCall& c, const char* name, int64_t count) {
  const float* device = c.floats(name, count);
  std::vector<float> host(static_cast<size_t>(count));
  c.backend().download(host.data(), device, host.size() * sizeof(float));
  return host;
}

void take_adapters(OpTestCall& c, int32_t num_rows, int64_t products, PlacedAdapters& to) {
  const int32_t places = c.size("adapter_places"), rank = c.size("adapter_rank");
  const int32_t cols = c.size("cols"), sections = c.size_or("sections", 1);
  if (places < 1 || rank < 1 || sections < 1 || products % sections != 0)
    throw Error(ErrorCode::kUsage, "runOp: adapters of no size");
  const int64_t outputs = products / sections;
  const std::vector<float> a = on_host(c, "adapter_a", int64_t{places} * sections * rank * cols);
  const std::vector<float> b = on_host(c, "adapter_b", places * products * rank);
  to.bank = c.backend().make_adapter_bank(
      {.inputs = cols,
       .outputs = std::vector<int64_t>(static_cast<size_t>(sections), outputs),
       .places = places,
       .max_rank = rank});
  const auto piece = [](const std::vector<float>& all, int64_t index, int64_t count) {
    const auto first = all.begin() + index * count;
    return std::vector<float>(first, first + count);
  };
  for (int32_t p = 0; p < places; ++p) {
    std::vector<AdapterFactors> factors;
    for (int32_t s = 0; s < sections; ++s) {
      const int64_t index = int64_t{p} * sections + s;
      factors.push_back({.section = s,
                         .rank = rank,
                         .a = piece(a, index, int64_t{rank} * cols),
                         .b = piece(b, index, outputs * rank)});
    }
    to.images.push_back(c.backend().pack_adapter(*to.bank, factors));
  }
  const int32_t* host = c.host_ints("places", num_rows);
  for (int32_t i = 0; i < num_rows; ++i) {
    if (host[i] < kNoAdapter || host[i] >= places)
      throw Error(ErrorCode::kUsage, "runOp: there is no such place");
    if (host[i] == kNoAdapter) continue;
    if (i > 0 && host[i] == host[i - 1]) {
      ++to.runs.back().count;
    } else {
      to.runs.push_back({i, 1, host[i]});
    }
  }
  to.rows = {.places = c.ints("places", num_rows), .runs = to.runs};
}

// A linear op with its epilogue, and a norm ahead of it when `normed`, which leaves x as it is.
Napi::Object run_product(OpTestCall& c, Epilogue epilogue, bool normed) {
  const int32_t rows = c.size("rows"), cols = c.size("cols"), outs = c.size("outs");
  const int64_t products = (epilogue == Epilogue::kGated ? 2 : 1) * int64_t{outs};
  const bool adds = epilogue == Epilogue::kAdd;
  const PackedWeightPtr weight = fill(c, {.rows = products,
                                          .cols = cols,
                                          .format = c.weight_format("dtype"),
                                          .epilogue = epilogue,
                                          .gate = c.gate()});
  LinearArgs args;
  args.x = c.activations("x", rows, cols);
  if (adds) {
    args.out = c.activations("inout", rows, outs);
  } else if (c.size_or("out_f32", 0) != 0) {
    args.out = Tensor::matrix(c.new_array<float>(int64_t{rows} * outs), DType::kF32, rows, outs);
  } else {
    args.out = c.new_activations(rows, outs);
  }
  if (epilogue != Epilogue::kStore) args.scratch = c.new_activations(rows, products);
  args.weight = weight.get();
  args.bias = c.has("bias") ? c.floats("bias", products) : nullptr;
  args.epilogue = epilogue;
  args.gate = weight->gate;
  c.output(adds ? "inout" : "out", args.out);
  NormArgs norm{};
  if (normed) {
    const float* factors = c.floats("norm", cols);
    const bool folded = c.backend().scale_columns(*weight, factors);
    norm = {.scratch = c.new_activations(rows, cols),
            .weight = folded ? nullptr : factors,
            .eps = c.number("eps")};
    args.norm = &norm;
  } else if (c.timed()) {
    c.backend().tune_linear(args);  // timings are those of the choice that an engine would make
  }
  PlacedAdapters adapters;
  if (c.has_attr("adapter_places")) {
    take_adapters(c, rows, products, adapters);
    args.bank = adapters.bank.get();
    args.adapters = &adapters.rows;
  }
  bool placed = false;
  return c.run([&] {
    for (size_t i = 0; i < adapters.images.size() && !placed; ++i)
      c.backend().place_adapter(*adapters.bank, static_cast<int32_t>(i), adapters.images[i].get());
    placed = true;
    c.backend().linear(args);
  });
}

template <Epilogue kEpilogue, bool kNormed>
Napi::Object run_linear(OpTestCall& c) {
  return run_product(c, kEpilogue, kNormed);
}

Napi::Object run_quantize(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols");
  const bool int4 = c.weight_format("dtype") == kFormatInt4;
  const Tensor out = c.matrix("weight", DType::kF32, rows, cols);
  if (!c.backend().info().host_memory) throw Error(ErrorCode::kUsage, "quantize runs on the host");
  c.output("out", out);
  return c.run([&] {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < cols; k += kQuantBlock) {
        float* at = out.as<float>() + r * cols + k;
        const int64_t n = std::min(kQuantBlock, cols - k);
        float values[kQuantBlock];
        for (int64_t i = 0; i < kQuantBlock; ++i) values[i] = at[i < n ? i : 0];
        QuantBlock q{};
        int4 ? quantize_int4(values, q) : quantize_int8(values, q);
        for (int64_t i = 0; i < n; ++i) {
          at[i] = bf16_to_f32(q.scale) * static_cast<float>(q.codes[i] - (int4 ? 0 : 128)) +
                  bf16_to_f32(q.min);
        }
      }
    }
  });
}

Napi::Object run_gated_mul(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols");
  const Tensor gate_up = c.activations("gate_up", rows, 2 * int64_t{cols}),
               out = c.new_activations(rows, cols);
  c.output("out", out);
  const Gate gate = c.gate();
  return c.run([&] { c.backend().gated_mul(out, gate_up, gate); });
}

Napi::Object run_cap_logits(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols");
  const Tensor logits = c.matrix("logits", DType::kF32, rows, cols);
  const float scale = c.number("scale"), cap = c.number("cap");
  c.output("logits", logits);
  return c.run([&] { c.backend().cap_logits(logits, scale, cap); });
}

Napi::Object run_gather_rows(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols"), count = c.size("count");
  const Tensor x = c.activations("x", rows, cols), out = c.new_activations(count, cols);
  const int32_t* ids = c.indices("ids", count, rows);
  c.output("out", out);
  return c.run([&] { c.backend().gather_rows(out, x, ids, count); });
}

Napi::Object run_sum_rows(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols"), count = c.size("count");
  const Tensor x = c.activations("x", rows, cols);
  const Tensor sums = c.matrix("sums", DType::kF32, c.size("sums"), cols);
  const int64_t words = 4 * int64_t{count};
  const int32_t* host = c.host_ints("entries", words);
  for (int64_t i = 0; i < words; i += 4) {
    const int64_t to = host[i], first = host[i + 1], end = first + host[i + 2];
    if (to < 0 || to >= sums.rows() || first < 0 || end < first || end > rows)
      throw Error(ErrorCode::kUsage, "runOp: an entry of sum_rows is out of range");
  }
  const auto* entries = reinterpret_cast<const RowSum*>(c.ints("entries", words));  // int32 words
  c.output("sums", sums);
  return c.run([&] { c.backend().sum_rows(sums, x, entries, count); });
}

// The inputs k and v, which are outputs too.
KvLayer cache(OpTestCall& c) {
  const int32_t blocks = c.size("num_blocks"), heads = c.size("kv_heads");
  const int32_t block_size = c.size("block_size"), head_dim = c.size("head_dim");
  const DType dtype = c.cache_dtype("kv_dtype");
  KvLayer kv{nullptr, nullptr, dtype, blocks, block_size, heads, head_dim};
  const DType given = dtype_bytes(dtype) == 1 ? DType::kF32 : dtype;
  const int64_t width = kv.block_bytes() / dtype_bytes(given);
  const Tensor k = c.matrix("k", given, blocks, width), v = c.matrix("v", given, blocks, width);
  c.output("k", k);
  c.output("v", v);
  kv.k = k.data;
  kv.v = v.data;
  return kv;
}

// Both words of a pair are int32.
const BlockCopy* block_pairs(OpTestCall& c, const char* name, int32_t count, int64_t limit) {
  return reinterpret_cast<const BlockCopy*>(c.host_indices(name, 2 * int64_t{count}, limit));
}

Napi::Object run_copy_blocks(OpTestCall& c) {
  const int32_t count = c.size("count");
  const KvLayer kv = cache(c);
  const BlockCopy* pairs = block_pairs(c, "pairs", count, kv.num_blocks);
  const BlockArray arrays[] = {{kv.k, kv.block_bytes()}, {kv.v, kv.block_bytes()}};
  return c.run([&] { c.backend().copy_blocks(arrays, pairs, count); });
}

Napi::Object run_swap_blocks(OpTestCall& c) {
  const int32_t count = c.size("count"), urgent = c.size("urgent");
  const KvLayer kv = cache(c);
  const int64_t bytes = kv.block_bytes();
  SwapPool pool{.arrays = {{kv.k, bytes}, {kv.v, bytes}}, .num_blocks = c.size("swap_blocks")};
  const HostBuffer host(c.backend(), pool.num_blocks * pool.block_bytes());
  const HostBuffer pairs(c.backend(), 2 * int64_t{count} * int64_t{sizeof(BlockCopy)});
  pool.host = host.as<void>();
  BlockCopy *outs = pairs.as<BlockCopy>(), *ins = outs + count;
  const int64_t most = std::max(kv.num_blocks, pool.num_blocks);
  std::copy_n(block_pairs(c, "outs", count, most), count, outs);
  std::copy_n(block_pairs(c, "ins", count, most), count, ins);
  bool good = urgent <= count;
  for (int32_t i = 0; i < count; ++i) {
    good = good && std::max(outs[i].src, ins[i].dst) < kv.num_blocks &&
           std::max(outs[i].dst, ins[i].src) < pool.num_blocks;
  }
  if (!good) throw Error(ErrorCode::kUsage, "runOp: pairs or urgent are out of range");
  c.backend().reserve_swap(pool);
  return c.run([&] {
    c.backend().swap_out(pool, outs, count, urgent);
    c.backend().swap_in(pool, ins, count);
  });
}

constexpr OpTest kTests[] = {
    {"embed", run_embed},
    {"embed_weight", run_embed_weight},
    {"rms_norm", run_rms_norm},
    {"rms_norm_columns", run_rms_norm_columns},
    {"add_rms_norm", run_add_rms_norm},
    {"add", run_add},
    {"linear", run_linear<Epilogue::kStore, false>},
    {"linear_add", run_linear<Epilogue::kAdd, false>},
    {"linear_gated", run_linear<Epilogue::kGated, false>},
    {"norm_linear", run_linear<Epilogue::kStore, true>},
    {"norm_linear_gated", run_linear<Epilogue::kGated, true>},
    {"quantize", run_quantize},
    {"gated_mul", run_gated_mul},
    {"cap_logits", run_cap_logits},
    {"gather_rows", run_gather_rows},
    {"sum_rows", run_sum_rows},
    {"copy_blocks", run_copy_blocks},
    {"swap_blocks", run_swap_blocks},
};

}  // namespace

std::span<const OpTest> dense_op_tests() { return kTests; }

}  // namespace inferd
