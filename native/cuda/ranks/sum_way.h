// Which way a sum over GPUs that reach each other takes: in one shot, where each rank sends all to
// all others, or in two, where each adds up a share for all. Pure: what differs is measured, once
// for all ranks, as all have to take the same way.
#pragma once
#include <cstdint>
#include <span>

namespace inferd::cuda {

// What a sum of so many bytes took, microseconds.
struct SumTimes {
  int64_t bytes;
  float one_shot, two_shot;
};

// Sums of so many bytes and more go in two shots.
struct SumWay {
  static constexpr int64_t kNever = INT64_MAX;
  int64_t two_shot_from = kNever;
};

// Where nothing was measured: what three and four H200 over NVLink were found to want (README), and
// what others found of eight (vLLM). A share of two would be as much to send, and one more way to
// wait for.
inline SumWay usual_sum_way(int32_t ranks) {
  if (ranks < 3) return {};
  return {.two_shot_from = ranks == 3 ? 512 << 10 : 256 << 10};
}

// `times` by ascending bytes; the usual way where there are none. Two shots from the size on from
// which they were faster at all sizes, and in any case beyond the largest, where bytes are what
// counts and they send fewer.
inline SumWay measured_sum_way(int32_t ranks, std::span<const SumTimes> times) {
  SumWay way = usual_sum_way(ranks);
  if (ranks < 3 || times.empty()) return way;
  way.two_shot_from = times.back().bytes + 1;
  for (auto t = times.rbegin(); t != times.rend() && t->two_shot < t->one_shot; ++t)
    way.two_shot_from = t->bytes;
  return way;
}

}  // namespace inferd::cuda
