// Table rows of the ops on activations: attributes | inputs -> outputs.
// Shapes are [rows, cols]; types in attributes are "f32", "f16" or "bf16".
//
// embed: rows vocab cols dtype | table[vocab, cols] ids[rows] -> out[rows, cols]
//
// rms_norm: rows cols eps | x weight[cols] -> out
//
// add_rms_norm: rows cols eps | inout x weight[cols] -> out inout
//
// add: rows cols | inout x -> inout
//
// linear: rows cols outs dtype source_dtype? parts? out_f32? | x weight[outs, cols] bias?[outs]
//   -> out
//   The weight is given as source_dtype and filled in `parts` calls of about equal size. dtype may
//   also be "int8" or "int4" (source_dtype is then f32 when absent). out_f32: the result is
//   float32, as logits are.
//
// linear_add: as linear | inout[rows, outs] too -> inout
//
// linear_gated: as linear, with weight[2 outs, cols] bias?[2 outs] -> out[rows, outs]
//
// norm_linear, norm_linear_gated: as linear and linear_gated, eps | norm[cols] too
//   The norm's weight is folded into the linear's where the backend does that, as models do.
//
// quantize: rows cols dtype | weight[rows, cols] -> out[rows, cols]
//   What a weight kept as "int8" or "int4" stands for, after the quantizer of core/quant.h.
//
// silu_mul: rows cols | gate_up[rows, 2 cols] -> out[rows, cols]
//
// gather_rows: rows cols count | x ids[count] -> out[count, cols]
//
// copy_blocks: num_blocks kv_heads block_size head_dim kv_dtype count | k v pairs[2 count] -> k v
//
// swap_blocks: num_blocks kv_heads block_size head_dim kv_dtype count swap_blocks urgent
//              | k v outs[2 count] ins[2 count] -> k v
//   Swaps out to a host pool of swap_blocks blocks, the first `urgent` pairs before the rest, and
//   then in.
//
// Here kv_dtype may also be "int8": k and v are then whole blocks as they lie in memory, scales
// included, given as float32 words.
#include "addon/testing_ops.h"

#include <algorithm>

#include "core/device_buffer.h"
#include "core/error.h"
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
  return c.run([&] { c.backend().embed(out, table, ids); });
}

Napi::Object run_rms_norm(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols");
  const Tensor x = c.activations("x", rows, cols), out = c.new_activations(rows, cols);
  const float* weight = c.floats("weight", cols);
  const float eps = c.number("eps");
  c.output("out", out);
  return c.run([&] { c.backend().rms_norm(out, x, weight, eps); });
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
  c.output("inout", inout);
  return c.run([&] { c.backend().add(inout, x); });
}

// Fills a weight from host rows that lie at an odd address, as they may in a checkpoint.
PackedWeightPtr fill(OpTestCall& c, int64_t outs, int32_t cols) {
  const DType kept = c.weight_dtype("dtype");
  if (c.noise() && !c.has("weight")) {
    PackedWeightPtr weight = c.backend().make_weight(outs, cols, kept);
    if (weight->plain != nullptr) {
      c.fill_noise(Tensor::matrix(weight->plain, kept, outs, cols));
      return weight;
    }
  }
  const DType stored = c.has_attr("source_dtype") ? c.dtype("source_dtype")
                       : is_quantized(kept)       ? DType::kF32
                                                  : kept;
  const Tensor device = c.matrix("weight", stored, outs, cols);
  const int64_t row_bytes = cols * dtype_bytes(stored);
  std::vector<std::byte> host(static_cast<size_t>(outs * row_bytes) + 1);
  c.backend().download(host.data() + 1, device.data, static_cast<size_t>(outs * row_bytes));
  PackedWeightPtr weight = c.backend().make_weight(outs, cols, kept);
  const int32_t parts = c.size_or("parts", 1);
  int64_t row = 0;
  for (int64_t p = 1; p <= parts; ++p) {
    const int64_t end = outs * p / parts;
    c.backend().fill_weight(
        *weight, row, Tensor::matrix(host.data() + 1 + row * row_bytes, stored, end - row, cols));
    row = end;
  }
  return weight;
}

// Timings are those of the choice that an engine would make.
void tune(OpTestCall& c, LinearUse use, PackedWeight& weight, const Tensor& out,
          const Tensor& scratch, const Tensor& x) {
  weight.use = use;
  if (c.timed()) c.backend().tune_linear(out, scratch, x, weight);
}

Napi::Object run_linear(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols"), outs = c.size("outs");
  const Tensor x = c.activations("x", rows, cols);
  const Tensor out =
      c.size_or("out_f32", 0) != 0
          ? Tensor::matrix(c.new_array<float>(int64_t{rows} * outs), DType::kF32, rows, outs)
          : c.new_activations(rows, outs);
  const PackedWeightPtr weight = fill(c, outs, cols);
  const float* bias = c.has("bias") ? c.floats("bias", outs) : nullptr;
  c.output("out", out);
  tune(c, LinearUse::kPlain, *weight, out, out, x);
  return c.run([&] { c.backend().linear(out, x, *weight, bias); });
}

Napi::Object run_linear_add(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols"), outs = c.size("outs");
  const Tensor x = c.activations("x", rows, cols), inout = c.activations("inout", rows, outs),
               scratch = c.new_activations(rows, outs);
  const PackedWeightPtr weight = fill(c, outs, cols);
  const float* bias = c.has("bias") ? c.floats("bias", outs) : nullptr;
  c.output("inout", inout);
  tune(c, LinearUse::kAdd, *weight, inout, scratch, x);
  return c.run([&] { c.backend().linear_add(inout, scratch, x, *weight, bias); });
}

Napi::Object run_linear_gated(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols"), outs = c.size("outs");
  const Tensor x = c.activations("x", rows, cols), out = c.new_activations(rows, outs),
               scratch = c.new_activations(rows, 2 * int64_t{outs});
  const PackedWeightPtr weight = fill(c, 2 * int64_t{outs}, cols);
  const float* bias = c.has("bias") ? c.floats("bias", 2 * int64_t{outs}) : nullptr;
  c.output("out", out);
  tune(c, LinearUse::kGated, *weight, out, scratch, x);
  return c.run([&] { c.backend().linear_gated(out, scratch, x, *weight, bias); });
}

// Leaves x as it is.
NormArgs norm_ahead(OpTestCall& c, const Tensor& x, PackedWeight& weight) {
  const auto cols = static_cast<int32_t>(x.cols());
  const float* norm = c.floats("norm", cols);
  const bool folded = c.backend().scale_columns(weight, norm);
  return {.x = x,
          .scratch = c.new_activations(static_cast<int32_t>(x.rows()), cols),
          .weight = folded ? nullptr : norm,
          .eps = c.number("eps")};
}

Napi::Object run_norm_linear(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols"), outs = c.size("outs");
  const Tensor x = c.activations("x", rows, cols), out = c.new_activations(rows, outs);
  const PackedWeightPtr weight = fill(c, outs, cols);
  const NormArgs norm = norm_ahead(c, x, *weight);
  const float* bias = c.has("bias") ? c.floats("bias", outs) : nullptr;
  c.output("out", out);
  return c.run([&] { c.backend().norm_linear(norm, out, *weight, bias); });
}

Napi::Object run_norm_linear_gated(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols"), outs = c.size("outs");
  const Tensor x = c.activations("x", rows, cols), out = c.new_activations(rows, outs),
               scratch = c.new_activations(rows, 2 * int64_t{outs});
  const PackedWeightPtr weight = fill(c, 2 * int64_t{outs}, cols);
  const NormArgs norm = norm_ahead(c, x, *weight);
  const float* bias = c.has("bias") ? c.floats("bias", 2 * int64_t{outs}) : nullptr;
  c.output("out", out);
  return c.run([&] { c.backend().norm_linear_gated(norm, out, scratch, *weight, bias); });
}

Napi::Object run_quantize(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols");
  const bool int4 = c.weight_dtype("dtype") == DType::kI4;
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

Napi::Object run_silu_mul(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols");
  const Tensor gate_up = c.activations("gate_up", rows, 2 * int64_t{cols}),
               out = c.new_activations(rows, cols);
  c.output("out", out);
  return c.run([&] { c.backend().silu_mul(out, gate_up); });
}

Napi::Object run_gather_rows(OpTestCall& c) {
  const int32_t rows = c.size("rows"), cols = c.size("cols"), count = c.size("count");
  const Tensor x = c.activations("x", rows, cols), out = c.new_activations(count, cols);
  const int32_t* ids = c.indices("ids", count, rows);
  c.output("out", out);
  return c.run([&] { c.backend().gather_rows(out, x, ids, count); });
}

// The inputs k and v, which are outputs too.
KvLayer cache(OpTestCall& c) {
  const int32_t blocks = c.size("num_blocks"), heads = c.size("kv_heads");
  const int32_t block_size = c.size("block_size"), head_dim = c.size("head_dim");
  const DType dtype = c.weight_dtype("kv_dtype");
  if (dtype == DType::kI4) throw Error(ErrorCode::kUsage, "runOp: no cache is int4");
  KvLayer kv{nullptr, nullptr, dtype, blocks, block_size, heads, head_dim};
  const DType given = dtype == DType::kI8 ? DType::kF32 : dtype;
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
  return c.run([&] { c.backend().copy_blocks({&kv, 1}, pairs, count); });
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
    {"rms_norm", run_rms_norm},
    {"add_rms_norm", run_add_rms_norm},
    {"add", run_add},
    {"linear", run_linear},
    {"linear_add", run_linear_add},
    {"linear_gated", run_linear_gated},
    {"norm_linear", run_norm_linear},
    {"norm_linear_gated", run_norm_linear_gated},
    {"quantize", run_quantize},
    {"silu_mul", run_silu_mul},
    {"gather_rows", run_gather_rows},
    {"copy_blocks", run_copy_blocks},
    {"swap_blocks", run_swap_blocks},
};

}  // namespace

std::span<const OpTest> dense_op_tests() { return kTests; }

}  // namespace inferd
