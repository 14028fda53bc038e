// 1. For each row: raw log-softmax of the token and the best entries; min_tokens mask, logit bias,
//    repetition, frequency and presence penalties, the grammar's mask; greedy below a temperature
//    of 1e-5; else temperature, min_p, top_k (exactly k), top_p, typical_p and one draw by the
//    inverse cumulative distribution in the order of ids. The token is appended to the slot's
//    history.
// 2. logits [rows, vocab] f32, any stride; all other inputs are slot tables (slots.h) that the
//    kernel reads itself, so that a captured launch follows them. Outputs as in sampler.h.
// 3. A row is a cluster of up to 8 blocks of 512 threads, each with a slice of the vocabulary; see
//    sampler_parts.cuh. Before compute capability 9.0: one block.
// 4. The slice stays in shared memory (64 KB of 128256 logits) next to 29 KB of bins and lists, so
//    that two blocks fit a multiprocessor; logits are read once. Where the slice does not fit it is
//    kept in the caller's scratch. 64 registers.
// 5. f32 logits and masses (ex2.approx, 2^-22), sums in fixed order with double above a warp,
//    integer bins: the same bits on every run. Against the CPU sampler a token differs only where a
//    limit or the draw falls within about 1e-6 of the mass. Filtered rows never draw a token more
//    than 28.4 nats below the best (4e-13 of its probability).
// 6. Any vocabulary, from sm_80. NaN counts as -inf; with nothing above -inf id 0 is taken.
// 7. Bytes 4 * rows * vocab; a row has 3 to 8 cluster barriers, which bound few rows. See
//    test/gpu/programs/sampler_test.cu for times.
// 8. Order of steps: vLLM V1. Radix selection: Alabi et al. 2012; typical sampling: Meister et al.
//    2022; Philox: Salmon et al. 2011.
// 9. Sorting the vocabulary: several times the memory traffic. Rejection sampling on the top-p set
//    (FlashInfer) needs a varying number of rounds and other draws than the CPU's.
#include "cuda/device/launch.cuh"
#include "cuda/sampler/sampler.h"
#include "cuda/sampler/sampler_draw.cuh"
#include "cuda/sampler/sampler_launch.h"
#include "cuda/sampler/sampler_raw.cuh"

namespace inferd::cuda {
namespace sampler {
namespace {

extern __shared__ uint4 shared_memory[];

template <bool kOnChip>
__device__ Slice slice_of(int32_t vocab, int32_t slice_floats, float* scratch) {
  const int32_t rank = static_cast<int32_t>(part_rank());
  Slice slice;
  slice.begin = min(rank * slice_floats, vocab);
  slice.count = min(slice_floats, vocab - slice.begin);
  slice.padded = (slice.count + 3) / 4 * 4;
  if constexpr (kOnChip) {
    slice.z = reinterpret_cast<float*>(reinterpret_cast<char*>(shared_memory) + sizeof(Shared));
  } else {
    const int64_t part = static_cast<int64_t>(blockIdx.y) * part_count() + rank;
    slice.z = scratch + part * slice_floats;
  }
  return slice;
}

// One thread of a row: the results, and the token into the history.
__device__ void deliver(const SampleParams& p, int32_t slot, int32_t length, int32_t token,
                        float logprob, int32_t rank, bool wants) {
  const int row = blockIdx.y;
  p.out.tokens[row] = token;
  p.out.logprobs[row] = logprob;
  p.out.ranks[row] = rank;
  if (!wants) p.out.top_counts[row] = 0;
  if (p.drafted || length >= p.slots.max_len) return;  // full: no next step reads the token
  p.slots.tokens[static_cast<int64_t>(slot) * p.slots.max_len + length] = token;
  p.slots.lengths[slot] = length + 1;
}

__device__ Edits edits_of(const SampleParams& p, int32_t slot, int32_t offset,
                          const SamplingRow& row) {
  const DeviceSlots& t = p.slots;
  const int64_t at = slot;
  const SlotList &bias = t.lists[kBiasList], &masked = t.lists[kMaskedList];
  Edits e = {
      .masked_ids = masked.column(at, 0),
      .bias_ids = bias.column(at, 0),
      .bias_values = reinterpret_cast<const float*>(bias.column(at, 1)),
      .history = t.tokens + at * t.max_len,
      .num_masked = masked.counts[slot],
      .num_bias = bias.counts[slot],
      .length = t.lengths[slot] + offset,
      .prompt_len = t.prompt_lens[slot],
      .repetition_penalty = row.repetition_penalty,
      .frequency_penalty = row.frequency_penalty,
      .presence_penalty = row.presence_penalty,
      .mask = row.grammar == 0 ? nullptr : t.masks + (at * t.max_sample + offset) * t.mask_words};
  if (e.length - e.prompt_len >= row.min_tokens) e.num_masked = 0;
  return e;
}

// All parts. Applies the limits and draws; true in the one thread that holds `token`. `mine` is the
// thread's best key.
__device__ bool draw(Shared& s, int& turn, const Slice& slice, int32_t slice_floats, int32_t vocab,
                     uint64_t mine, float max, const SamplingRow& row, int32_t& token) {
  constexpr int kQuickTopK = 700;    // so many thread bests hold hardly more entries than a list
  constexpr int kQuickTokens = 256;  // that top_p is tried with first
  const bool limited = row.top_k > 0 && row.top_k < vocab;
  const bool filtered = limited || row.min_p > 0.f || row.top_p < 1.f || row.typical_p < 1.f;
  Filter f = {.max = max,
              .inverse_temperature = 1.f / row.temperature,
              .reach = filtered ? kReach : -minus_inf()};
  // mass at least min_p
  if (row.min_p > 0.f) f.reach = fminf(kReach, fmaxf(0.f, -logf(row.min_p)));
  const Kept kept = {slice, f};
  const Own own = {f, mine};
  const ByLogit order;
  const int bits = word_bits(slice_floats);
  ListLimits limits = {0, row.top_p, row.typical_p, 0.};
  Bound bound = {};
  const auto up_to_bin = [&](const Entry& e) { return order.bin(e) <= bound.bin; };

  // When the candidates fit in a list, part 0 does the rest alone.
  const auto list_draw = [&](int n, bool sorted) {
    if (part_rank() != 0) return false;
    if (!sorted) sort_list(s, n);
    token = draw_from_list(s, n, f, limits, s.uniform);
    return threadIdx.x == 0;
  };
  if (limited) {
    const auto goal = static_cast<double>(row.top_k);
    limits.top_k = row.top_k;
    if (row.top_k <= kQuickTopK) {
      bound = locate<Weigh::kCount>(s, own, order, bits, 0., goal);
      if (bound.found != 0) {
        const int n = gather(s, turn, kept, order, up_to_bin);
        if (n <= kListMax) return list_draw(n, false);
      } else {
        parts_sync();
      }
    }
    bound = locate<Weigh::kCount>(s, kept, order, bits, 0., goal);
    if (bound.found != 0 && bound.before + bound.inside <= kListMax) {
      return list_draw(gather(s, turn, kept, order, up_to_bin), false);
    }
    if (bound.found != 0) {
      f.least_key = last_key<Weigh::kCount>(s, turn, kept, order, bits, bound);
    } else {
      parts_sync();
    }
    limits.top_k = 0;
  }
  if (row.top_p < 1.f) {
    float sum = 0.f;
    kept([&](const Entry& e) { sum += mass_of(e.spread); });
    limits.total = sum_of_parts(s, turn, static_cast<double>(sum));
    const double goal = static_cast<double>(row.top_p) * limits.total;
    bound = locate<Weigh::kCount>(s, own, order, bits, 0., kQuickTokens);
    const bool all = bound.found == 0;
    if (all) bound.bin = kBins - 1;
    const int n = gather(s, turn, kept, order, up_to_bin);
    if (n <= kListMax) {
      bool enough = all;
      if (part_rank() == 0) {
        double upto[2];
        sort_list(s, n);
        enough = list_prefix(s, n, upto) >= goal || all;
      }
      if (show(s, turn, enough ? 1 : 0)[0] != 0) return list_draw(n, true);
    }
    bound = locate<Weigh::kMass>(s, kept, order, bits, 0., goal);
    if (bound.found != 0) {
      f.least_key = last_key<Weigh::kMass>(s, turn, kept, order, bits, bound);
    } else {
      parts_sync();
    }
  }
  if (row.typical_p < 1.f) {
    float mass_sum = 0.f, moment_sum = 0.f;
    kept([&](const Entry& e) {
      const float mass = mass_of(e.spread);
      mass_sum += mass;
      moment_sum += mass * e.spread;
    });
    const double mass = sum_of_parts(s, turn, static_cast<double>(mass_sum));
    const double moment = sum_of_parts(s, turn, static_cast<double>(moment_sum));
    const ByTypical typical = {static_cast<float>(moment / mass)};
    bound = locate<Weigh::kFineMass>(s, kept, typical, bits, 0.,
                                     static_cast<double>(row.typical_p) * mass);
    if (bound.found != 0) {
      const uint64_t least = last_key<Weigh::kFineMass>(s, turn, kept, typical, bits, bound);
      f.typical_mean = typical.mean;
      f.least_typical = least;
    }
  }
  return draw_from_all(s, turn, slice, f, s.uniform, token);
}

template <bool kOnChip>
__global__ void __launch_bounds__(kThreads, 2)
    sample_kernel(const SampleParams p, int32_t slice_floats) {
  Shared& s = *reinterpret_cast<Shared*>(shared_memory);
  int turn = 0;
  let_next_start();
  parts_begin();
  wait_for_previous();
  const int32_t slot = p.samples[blockIdx.y].slot;
  const float* logits = p.logits + static_cast<int64_t>(blockIdx.y) * p.row_stride;
  const Slice slice = slice_of<kOnChip>(p.vocab, slice_floats, p.scratch);
  uint64_t mine = load_slice(slice, logits), best = 0;
  if (slot < 0) return;  // all parts
  if (drafted_away(p, blockIdx.y, slot)) {
    if (part_rank() == 0 && threadIdx.x == 0)
      deliver(p, slot, 0, kNoDraft, __int_as_float(0x7fc00000), 0, false);
    return;  // all parts
  }
  parts_have_begun();
  const SamplingRow& row = p.slots.sampling[slot];  // not in registers
  const Edits edits = edits_of(p, slot, p.samples[blockIdx.y].offset, row);
  const bool wants = row.top_logprobs >= 0, greedy = !(row.temperature >= kGreedyBelow);
  if (threadIdx.x == 0) {
    s.uniform = uniform_draw(row.seed_lo, row.seed_hi,
                             static_cast<uint32_t>(edits.length - edits.prompt_len),
                             static_cast<uint32_t>(row.sequence_index));
  }
  __syncthreads();
  float raw_max = 0.f;
  double raw_total = 0.;
  if (wants || !edits.any()) best = max_of_parts(s, turn, mine);
  if (wants) {
    raw_max = logit_of(best);
    raw_total = exp_total(s, turn, slice, raw_max);
    write_top(s, turn, slice, mine, raw_max, raw_total,
              min(min(row.top_logprobs, kMaxTopLogprobs), p.vocab), blockIdx.y, p.out);
  }
  if (edits.any()) {
    mine = edit_slice(s, slice, edits);
    best = max_of_parts(s, turn, mine);
  }
  int32_t token = id_of(best);
  const float max = logit_of(best);
  bool holds = part_rank() == 0 && threadIdx.x == 0;
  const bool drawn = !greedy && max > minus_inf();
  if (drawn) holds = draw(s, turn, slice, slice_floats, p.vocab, mine, max, row, token);
  if (!wants) {
    if (holds) deliver(p, slot, edits.length, token, __int_as_float(0x7fc00000), 0, false);
    return;
  }
  if (drawn) {
    if (holds) {
      for (uint32_t r = 0; r < part_count(); ++r) *of_part(&s.token, r) = token;
    }
    parts_sync();
    token = s.token;
  }
  const float z = clean(__ldcg(logits + token));
  const int32_t rank = rank_of(s, turn, slice, logits, token, z);
  if (part_rank() == 0 && threadIdx.x == 0) {
    deliver(p, slot, edits.length, token, log_probability(z, raw_max, raw_total), rank, true);
  }
}

template <bool kOnChip>
__global__ void __launch_bounds__(kThreads, 2)
    score_kernel(const ScoreParams p, int32_t slice_floats) {
  Shared& s = *reinterpret_cast<Shared*>(shared_memory);
  int turn = 0;
  let_next_start();
  parts_begin();
  wait_for_previous();
  const int row = blockIdx.y;
  const int32_t target = p.targets[row];
  if (target < 0 || target >= p.vocab) return;  // all parts
  const float* logits = p.logits + static_cast<int64_t>(row) * p.row_stride;
  const Slice slice = slice_of<kOnChip>(p.vocab, slice_floats, p.scratch);
  const uint64_t mine = load_slice(slice, logits);
  __syncthreads();
  parts_have_begun();
  const float max = logit_of(max_of_parts(s, turn, mine));
  const double total = exp_total(s, turn, slice, max);
  write_top(s, turn, slice, mine, max, total, min(p.top, p.vocab), row, p.out);
  const float z = clean(__ldcg(logits + target));
  const int32_t rank = rank_of(s, turn, slice, logits, target, z);
  if (part_rank() == 0 && threadIdx.x == 0) {
    p.out.tokens[row] = target;
    p.out.logprobs[row] = log_probability(z, max, total);
    p.out.ranks[row] = rank;
  }
}

template <typename Params>
cudaError_t start(void (*on_chip)(Params, int32_t), void (*in_scratch)(Params, int32_t),
                  const Params& p, const Launch& launch) {
  Layout layout;
  const cudaError_t error = layout_for(p.vocab, layout);
  if (error != cudaSuccess) return error;
  if (!layout.on_chip && p.scratch == nullptr) return cudaErrorInvalidValue;
  return launch_kernel(
      layout.on_chip ? on_chip : in_scratch,
      {.grid = dim3(static_cast<unsigned>(layout.parts), static_cast<unsigned>(p.rows)),
       .threads = kThreads,
       .shared_bytes = layout.shared_bytes,
       .cluster = layout.parts},
      launch, p, layout.slice);
}

}  // namespace

cudaError_t layout_for(int32_t vocab, Layout& layout) {
  constexpr int32_t kPartLogits = 8192;  // below this a part costs more than it saves
  int device = 0, major = 0, most_shared = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) return error;
  layout.parts = 1;
  if (major >= 9 && INFERD_MOST_MAJOR >= 9) {
    while (layout.parts < kMaxParts && layout.parts * kPartLogits < vocab) layout.parts *= 2;
  }
  layout.slice = slice_length(vocab, layout.parts);
  const size_t slice_bytes = static_cast<size_t>(layout.slice) * sizeof(float);
  layout.on_chip = sizeof(Shared) + slice_bytes <= static_cast<size_t>(most_shared);
  layout.shared_bytes = sizeof(Shared) + (layout.on_chip ? slice_bytes : 0);
  return cudaSuccess;
}

}  // namespace sampler

cudaError_t sampler_scratch_bytes(int32_t vocab, int32_t rows, size_t& bytes) {
  if (vocab < 1 || rows < 0) return cudaErrorInvalidValue;
  sampler::Layout layout;
  const cudaError_t error = sampler::layout_for(vocab, layout);
  if (error == cudaSuccess) bytes = static_cast<size_t>(layout.row_floats() * rows) * sizeof(float);
  return error;
}

cudaError_t sample(const SampleParams& p, SampleHint hint, const Launch& launch) {
  if (p.vocab < 1 || p.rows < 0 || p.rows > 65535) return cudaErrorInvalidValue;
  if (p.rows == 0) return cudaSuccess;
  if (hint == SampleHint::kPlainGreedy) return sampler::greedy(p, launch);
  return sampler::start(sampler::sample_kernel<true>, sampler::sample_kernel<false>, p, launch);
}

cudaError_t score(const ScoreParams& p, const Launch& launch) {
  if (p.vocab < 1 || p.rows < 0 || p.rows > 65535 || p.top < 0 || p.top > kMaxTopLogprobs) {
    return cudaErrorInvalidValue;
  }
  if (p.rows == 0) return cudaSuccess;
  return sampler::start(sampler::score_kernel<true>, sampler::score_kernel<false>, p, launch);
}

}  // namespace inferd::cuda
