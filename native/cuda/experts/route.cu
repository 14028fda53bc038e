// 1. Which experts each token goes to, with which weights, and the pairs of tokens and experts in
//    the order of experts: core/experts.h says the rules.
// 2. logits [tokens, experts] f32; experts up to 1024, 1 to 32 chosen; see experts.h.
// 3. Up to 8 tokens: one block does both. More: route_kernel, a warp a token, four a block, then
//    sort_kernel: a warp an expert, which goes through all pairs twice: to count those of the
//    experts before it, then to place its own.
// 4. Shared memory: 4 KB a warp for what groups of experts are left out by. A lane has its experts
//    in registers: 4, 8 or 32 of them.
// 5. f32. Softmax chooses by the logits, whose order is that of the scores; sums of exponentials
//    and of weights are in an order of their own, so that weights differ from the CPU's by some
//    1e-7. The sort is stable and the same run to run: no atomics.
// 6. Any architecture from sm_80; nothing waits for the host, and the grids follow from the largest
//    counts, so that recorded graphs stay right while tokens change.
// 7. Bound by launches in decode. The sort reads tokens * chosen * held words from L2: 8192 tokens
//    of 8 out of 128 experts are 33 MB. Not measured yet.
// 8. Counting sort by warps: ballots give the rank within a warp.
// 9. The norm ahead, the router's product and this in one kernel for up to 4 tokens, whose last
//    block routes: on an H100 Qwen3-30B-A3B 3.16 ms a step for 3.11, gpt-oss 2.14 for 2.08,
//    DeepSeek-V2-Lite 2.72 for 2.70. Norm and product alone in one, without counting: 3.11, 2.08
//    and 2.67, no gain that would pay for a kernel. The three start early and wait for little;
//    blocks that count themselves wait for more. Values in shared memory, of which each choice read
//    all: 5.3 us from the end of the kernel ahead to its own, Qwen3-30B-A3B 3.11 ms a step for
//    3.03.
#include <math_constants.h>

#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/experts/experts.h"

namespace inferd::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kFewTokens = 8;  // what one block routes and sorts
static_assert(kMostChosen <= kWarp, "a thread a pair");
constexpr float kLeast = -3.402823466e38f;

// Where the largest value of all lanes is, ties at the lower place; the same in every lane. Values
// are no NaN and no -0.
__device__ int32_t warp_best(float value, int32_t at) {
  // As whole numbers in the order of the values.
  const uint32_t bits = __float_as_uint(value);
  const uint32_t order = bits >> 31 ? ~bits : bits | 0x80000000u;
  const bool best = order == __reduce_max_sync(kFullWarp, order);
  return __reduce_min_sync(kFullWarp, best ? at : INT32_MAX);
}

// Values of experts lane, lane + 32, ...: the largest of all lanes', which is then taken away.
// Where it is; the same in every lane.
template <int kOwn>
__device__ int32_t take_best(float (&own)[kOwn], int lane) {
  float best = -CUDART_INF_F;
  int32_t best_at = kOwn * kWarp;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (own[i] > best) {
      best = own[i];
      best_at = i * kWarp + lane;
    }
  }
  const int32_t at = warp_best(best, best_at);
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (at == i * kWarp + lane) own[i] = -CUDART_INF_F;
  return at;
}

__device__ float group_value(const RouterRule& rule, const float* choice, int32_t size) {
  float best = -CUDART_INF_F, second = -CUDART_INF_F;
  for (int32_t e = 0; e < size; ++e) {
    const float x = choice[e];
    if (x > best) {
      second = best;
      best = x;
    } else if (x > second) {
      second = x;
    }
  }
  return rule.group_score == GroupScore::kBestTwo && size > 1 ? best + second : best;
}

// Experts of groups that are left out are not to be chosen.
__device__ void leave_out_groups(const RouterRule& rule, float* choice, int lane) {
  const int32_t size = rule.experts / rule.groups;
  // Each lane keeps the values of groups lane, lane + 32, ..
  constexpr int kHeld = kMostExperts / kWarp;
  float values[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int32_t g = i * kWarp + lane;
    values[i] = g < rule.groups ? group_value(rule, choice + g * size, size) : -CUDART_INF_F;
  }
  uint32_t kept = 0;  // bit i: group i * 32 + lane
  for (int32_t n = 0; n < rule.chosen_groups; ++n) {
    float best = -CUDART_INF_F;
    int32_t best_at = rule.groups;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (kept >> i & 1 || !(values[i] > best)) continue;
      best = values[i];
      best_at = i * kWarp + lane;
    }
    const int32_t at = warp_best(best, best_at);
    if (at < rule.groups && at % kWarp == lane) kept |= 1u << (at / kWarp);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int32_t g = i * kWarp + lane;
    if (g >= rule.groups || (kept >> i & 1)) continue;
    for (int32_t e = 0; e < size; ++e) choice[g * size + e] = -CUDART_INF_F;
  }
  __syncwarp();
}

__device__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// Experts and weights of a token, by one warp, of whose lanes each has kOwn experts; `choice` is
// room for a value an expert. Lane i gets the token's i-th best expert, or a number beyond the
// last, and at which place of the token's its pair is.
struct RoutedPair {
  int32_t expert, place;
};
template <int kOwn>
__device__ RoutedPair route_token(const RouteParams& p, int32_t token, float* choice, int lane) {
  const RouterRule& rule = p.rule;
  const int64_t at = static_cast<int64_t>(token) * rule.chosen;
  const float* const of_token = p.logits + static_cast<int64_t>(token) * rule.experts;
  float logits[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int32_t e = i * kWarp + lane;
    logits[i] = e < rule.experts ? of_token[e] : -CUDART_INF_F;
  }
  if (p.positions != nullptr && p.positions[token] < 0) {
    if (lane < rule.chosen) {
      p.routing.experts[at + lane] = -1;
      p.routing.weights[at + lane] = 0.f;
    }
    return {rule.experts, lane};
  }
  const bool softmax = rule.scores == RouterScores::kSoftmax;
  float top = -CUDART_INF_F, sum = 0.f;
  if (softmax) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) top = fmaxf(top, logits[i]);
    top = warp_max(top);
    if (!rule.normalize || p.correction != nullptr) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        if (i * kWarp + lane < rule.experts) sum += expf(logits[i] - top);
      sum = warp_sum(sum);
    }
  }
  const auto score = [&](float logit) { return softmax ? expf(logit - top) : sigmoid(logit); };
  float own[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int32_t e = i * kWarp + lane;
    own[i] = -CUDART_INF_F;
    if (e >= rule.experts) continue;
    const float s = softmax && p.correction == nullptr ? logits[i]
                    : softmax                          ? score(logits[i]) / sum
                                                       : score(logits[i]);
    const float c = p.correction == nullptr ? s : s + p.correction[e];
    own[i] = c > kLeast ? c + 0.f : kLeast;  // NaN too: -inf is for what must not be chosen
  }
  if (rule.chosen_groups < rule.groups) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (i * kWarp + lane < rule.experts) choice[i * kWarp + lane] = own[i];
    __syncwarp();
    leave_out_groups(rule, choice, lane);
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (i * kWarp + lane < rule.experts) own[i] = choice[i * kWarp + lane];
  }
  int32_t mine = rule.experts;  // of lane i: the i-th best
  for (int32_t i = 0; i < rule.chosen; ++i) {
    const int32_t expert = take_best(own, lane);
    if (lane == i) mine = expert;
  }
  const bool has = lane < rule.chosen && mine < rule.experts;
  const float weight = has ? score(of_token[mine]) : 0.f;
  const float total = warp_sum(weight);
  if (rule.normalize) sum = softmax ? total : total + 1e-20f;
  const float factor = rule.scale / (softmax || rule.normalize ? sum : 1.f);
  int32_t rank = 0;  // by the number of the expert
  for (int32_t i = 0; i < rule.chosen; ++i) rank += __shfl_sync(kFullWarp, mine, i) < mine;
  if (has) {
    p.routing.experts[at + rank] = mine;
    p.routing.weights[at + rank] = weight * factor;
  }
  return {mine, rank};
}

template <int kOwn>
__global__ void __launch_bounds__(kThreads) route_kernel(const __grid_constant__ RouteParams p) {
  __shared__ float choices[kWarps][kMostExperts];
  const int warp = threadIdx.x / kWarp;
  const int32_t token = blockIdx.x * kWarps + warp;
  let_next_start();
  wait_for_previous();
  if (token < p.tokens) route_token<kOwn>(p, token, choices[warp], threadIdx.x % kWarp);
}

// Both of a few tokens, a warp each, in one block: a pair's place is the number of pairs before it.
template <int kOwn>
__global__ void __launch_bounds__(kFewTokens* kWarp)
    route_few_kernel(const __grid_constant__ RouteParams p) {
  __shared__ float choices[kFewTokens][kMostExperts];
  __shared__ int32_t experts[kFewTokens * kMostChosen];
  const int lane = threadIdx.x % kWarp;
  const auto token = static_cast<int32_t>(threadIdx.x / kWarp),
             thread = static_cast<int32_t>(threadIdx.x);
  const Routing& r = p.routing;
  let_next_start();
  wait_for_previous();
  if (token < p.tokens) {
    const RoutedPair pair = route_token<kOwn>(p, token, choices[token], lane);
    // An expert that is not held here comes behind all that are, and so does none.
    const int32_t e = pair.expert - p.first_held;
    const bool held = pair.expert < p.rule.experts && e >= 0 && e < p.held;
    if (lane < p.rule.chosen) experts[token * p.rule.chosen + pair.place] = held ? e : p.held;
  }
  __syncthreads();
  const int32_t pairs = p.tokens * p.rule.chosen;
  if (thread < pairs) {
    const int32_t mine = experts[thread];
    int32_t place = 0;
    for (int32_t i = 0; i < pairs; ++i)
      place += experts[i] < mine || (experts[i] == mine && i < thread);
    r.places[thread] = mine < p.held ? place : -1;
    if (mine < p.held) r.pairs[place] = thread;
  }
  for (int32_t e = thread; e <= p.held; e += kFewTokens * kWarp) {
    int32_t before = 0;
    for (int32_t i = 0; i < pairs; ++i) before += experts[i] < e;
    r.offsets[e] = before;
  }
}

__global__ void __launch_bounds__(kThreads) sort_kernel(const __grid_constant__ RouteParams p) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int32_t mine = blockIdx.x * kWarps + warp;
  let_next_start();
  wait_for_previous();
  if (mine >= p.held) return;
  const Routing& r = p.routing;
  const int32_t pairs = p.tokens * p.rule.chosen;
  int32_t before = 0;  // pairs of the experts held before this one
  for (int32_t pair = lane; pair < pairs; pair += kWarp) {
    const int32_t e = r.experts[pair] - p.first_held;
    before += e >= 0 && e < mine;
    if (mine == 0 && (e < 0 || e >= p.held)) r.places[pair] = -1;
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2)
    before += __shfl_xor_sync(kFullWarp, before, step);
  if (lane == 0) r.offsets[mine] = before;
  for (int32_t first = 0; first < pairs; first += kWarp) {
    const int32_t pair = first + lane;
    const bool own = pair < pairs && r.experts[pair] - p.first_held == mine;
    const unsigned all = __ballot_sync(kFullWarp, own);
    if (own) {
      const int32_t place = before + __popc(all & ((1u << lane) - 1));
      r.pairs[place] = pair;
      r.places[pair] = place;
    }
    before += __popc(all);
  }
  if (lane == 0 && mine == p.held - 1) r.offsets[p.held] = before;
}

dim3 warps(int32_t n) { return dim3(static_cast<unsigned>((n + kWarps - 1) / kWarps)); }

// kOwn: how many experts a lane has.
template <int kOwn>
cudaError_t choose_experts(const RouteParams& p, const Launch& launch) {
  if (p.tokens <= kFewTokens) {
    return launch_kernel(route_few_kernel<kOwn>, {.grid = dim3(1), .threads = kFewTokens * kWarp},
                         launch, p);
  }
  const cudaError_t error =
      launch_kernel(route_kernel<kOwn>, {.grid = warps(p.tokens), .threads = kThreads}, launch, p);
  if (error != cudaSuccess) return error;
  return launch_kernel(sort_kernel, {.grid = warps(p.held), .threads = kThreads}, launch, p);
}

}  // namespace

cudaError_t route_tokens(const RouteParams& p, const Launch& launch) {
  const RouterRule& rule = p.rule;
  if (rule.experts < 1 || rule.experts > kMostExperts || rule.chosen < 1 ||
      rule.chosen > kMostChosen || p.held < 1 || p.tokens < 0 ||
      p.tokens > INT32_MAX / rule.chosen) {
    return cudaErrorInvalidValue;
  }
  if (p.tokens == 0) return cudaSuccess;
  if (rule.experts <= 4 * kWarp) return choose_experts<4>(p, launch);
  return rule.experts <= 8 * kWarp ? choose_experts<8>(p, launch)
                                   : choose_experts<kMostExperts / kWarp>(p, launch);
}

}  // namespace inferd::cuda
