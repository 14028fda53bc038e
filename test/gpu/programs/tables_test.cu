// Slot tables and block copies on a GPU: random plans and copies against exact host code, then
// times beside the machine's read and bus bandwidth.
//   ./tables_test [check|quick|bench]     sources: programs.mjs; quick: few plans, for
//   compute-sanitizer
#include <cstddef>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>

#include "cuda/runtime/block_copy.h"
#include "cuda/sampler/slots.h"
#include "gpu_test.cuh"

using namespace gpu_test;
using namespace inferd;
using namespace inferd::cuda;

namespace {

constexpr size_t kHeaderWords = sizeof(PlanHeader) / 4;
constexpr size_t kNumFreed = offsetof(PlanHeader, num_freed) / 4;
constexpr size_t kNumNewSlots = offsetof(PlanHeader, num_new_slots) / 4;
constexpr size_t kNumBlockSets = offsetof(PlanHeader, num_block_sets) / 4;

// Random plans on the device and on the host, compared after each.
void check_slots(int rounds, cudaStream_t stream) {
  constexpr int32_t kSlots = 24, kLen = 2048, kBlocks = 700, kEntries = 8;  // of each list
  struct Tables {
    std::vector<int32_t> tokens, lengths, prompt_lens, num_drafts, blocks, lists[kSlotLists],
        counts[kSlotLists];
    std::vector<SamplingRow> sampling;
  } host;
  host.tokens.resize(kSlots * kLen);
  host.lengths.resize(kSlots);
  host.prompt_lens.resize(kSlots);
  host.num_drafts.assign(kSlots, 3);
  host.blocks.resize(kSlots * kBlocks);
  host.sampling.resize(kSlots);
  std::memset(host.sampling.data(), 0, sizeof(SamplingRow) * kSlots);
  Device<int32_t> tokens(host.tokens), lengths(host.lengths), prompt_lens(host.prompt_lens),
      num_drafts(host.num_drafts), blocks(host.blocks);
  Device<SamplingRow> sampling(host.sampling);
  DeviceSlots slots = {.tokens = tokens.get(),
                       .lengths = lengths.get(),
                       .prompt_lens = prompt_lens.get(),
                       .blocks = blocks.get(),
                       .sampling = sampling.get(),
                       .lists = {},
                       .masks = nullptr,
                       .num_drafts = num_drafts.get(),
                       .max_slots = kSlots,
                       .max_len = kLen,
                       .max_blocks = kBlocks,
                       .mask_words = 0,
                       .max_sample = 1};
  std::deque<Device<int32_t>> lists, counts;
  for (int32_t kind = 0; kind < kSlotLists; ++kind) {
    const int32_t words = kSlotListKinds[kind].words;
    host.lists[kind].resize(static_cast<size_t>(kSlots * words * kEntries));
    host.counts[kind].resize(kSlots);
    slots.lists[kind] = {.words = lists.emplace_back(host.lists[kind]).get(),
                         .counts = counts.emplace_back(host.counts[kind]).get(),
                         .entry_words = words,
                         .most = kEntries};
  }
  std::mt19937 random(5);
  const auto pick = [&](int n) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(n));
  };
  for (int round = 0; round < rounds; ++round) {
    std::vector<int32_t> words(kHeaderWords, 0);
    words[kNumFreed] = pick(3);
    for (int i = 0; i < words[kNumFreed]; ++i) words.push_back(i);
    words[kNumNewSlots] = round % 3 == 2 ? 0 : pick(12);
    std::vector<int32_t> free_slots(kSlots);
    std::iota(free_slots.begin(), free_slots.end(), 0);
    std::shuffle(free_slots.begin(), free_slots.end(), random);
    for (int i = 0; i < words[kNumNewSlots]; ++i) {
      NewSlotFixed fixed;
      std::memset(&fixed, 0, sizeof(fixed));
      fixed.slot = free_slots[static_cast<size_t>(i)];
      fixed.fork_of = round % 3 == 1 && pick(2) == 0 ? pick(kSlots) : -1;
      fixed.num_tokens = fixed.fork_of >= 0 ? 0 : pick(kLen);
      fixed.prompt_len = pick(100);
      for (int32_t& count : fixed.list_counts) count = pick(kEntries + 1);
      fixed.sampling.seed_lo = static_cast<uint32_t>(random());
      fixed.sampling.sequence_index = pick(10);
      fixed.sampling.top_p = 0.5f;
      const auto* raw = reinterpret_cast<const int32_t*>(&fixed);
      words.insert(words.end(), raw, raw + sizeof(fixed) / 4);
      const int64_t s = fixed.slot;
      if (fixed.fork_of >= 0) {
        const int32_t length = host.lengths[static_cast<size_t>(fixed.fork_of)];
        for (int32_t t = 0; t < length; ++t)
          host.tokens[static_cast<size_t>(s * kLen + t)] =
              host.tokens[static_cast<size_t>(fixed.fork_of * kLen + t)];
        host.lengths[static_cast<size_t>(s)] = length;
      } else {
        host.lengths[static_cast<size_t>(s)] = fixed.num_tokens;
      }
      for (int32_t t = 0; t < fixed.num_tokens; ++t) {
        words.push_back(pick(100000));
        host.tokens[static_cast<size_t>(s * kLen + t)] = words.back();
      }
      for (int32_t kind = 0; kind < kSlotLists; ++kind) {
        SlotList list = slots.lists[kind];
        list.words = host.lists[kind].data();
        for (int32_t e = 0; e < fixed.list_counts[kind]; ++e) {
          for (int32_t w = 0; w < list.entry_words; ++w)
            words.push_back(list.column(s, w)[e] = pick(5000));
        }
        host.counts[kind][static_cast<size_t>(s)] = fixed.list_counts[kind];
      }
      host.prompt_lens[static_cast<size_t>(s)] = fixed.prompt_len;
      host.num_drafts[static_cast<size_t>(s)] = 0;
      host.sampling[static_cast<size_t>(s)] = fixed.sampling;
    }
    words[kNumBlockSets] = round % 4 == 3 ? 5000 : pick(40);
    for (int i = 0; i < words[kNumBlockSets]; ++i) {  // entries repeat: the later set holds
      const int32_t slot = pick(kSlots), index = pick(round % 2 == 0 ? 5 : kBlocks),
                    block = pick(1 << 20);
      words.insert(words.end(), {slot, index, block});
      host.blocks[static_cast<size_t>(slot) * kBlocks + index] = block;
    }
    std::vector<int32_t> index;
    index_plan(words.data(), index);
    Device<int32_t> device_words(words), device_index(index);
    CHECK_CUDA(apply_slots(slots, device_words.get(), device_index.get(), Launch(stream, true)));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    bool same = tokens.download() == host.tokens && lengths.download() == host.lengths &&
                prompt_lens.download() == host.prompt_lens &&
                num_drafts.download() == host.num_drafts && blocks.download() == host.blocks &&
                std::memcmp(sampling.download().data(), host.sampling.data(),
                            sizeof(SamplingRow) * kSlots) == 0;
    for (int32_t kind = 0; kind < kSlotLists; ++kind) {
      const auto at = static_cast<size_t>(kind);
      same = same && lists[at].download() == host.lists[kind] &&
             counts[at].download() == host.counts[kind];
    }
    expect(same, "apply_slots, plan " + std::to_string(round));
  }
  std::vector<PlanRow> rows;
  std::vector<int32_t> offsets = {0};
  for (int i = 0; i < 40; ++i) {
    const int32_t count = i % 5 == 4 ? 0 : 1 + pick(i % 7 == 0 ? 300 : 3);
    // A row of one token may start where the device's history ends.
    const int32_t slot = pick(kSlots);
    const bool from_device = count == 1 && host.lengths[static_cast<size_t>(slot)] > 0;
    rows.push_back({slot, pick(1000), count, from_device ? kRowFromDevice : 0});
    offsets.push_back(offsets.back() + count);
  }
  const int32_t live = offsets.back(), padded = live + 77;
  Device<PlanRow> device_rows(rows);
  Device<int32_t> device_offsets(offsets), ids(padded), positions(padded), token_rows(padded),
      token_slots(padded);
  CHECK_CUDA(gather_tokens(slots,
                           {device_rows.get(), device_offsets.get(), ids.get(), positions.get(),
                            token_rows.get(), token_slots.get(), 40, padded},
                           Launch(stream, true)));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const auto got_ids = ids.download(), got_positions = positions.download(),
             got_rows = token_rows.download(), got_slots = token_slots.download();
  bool good = true;
  for (int r = 0; r < 40; ++r) {
    for (int32_t i = 0; i < rows[r].count; ++i) {
      const auto at = static_cast<size_t>(offsets[r] + i);
      const bool from_device = rows[r].flags == kRowFromDevice;
      const int32_t p =
          from_device ? host.lengths[static_cast<size_t>(rows[r].slot)] - 1 : rows[r].start + i;
      good = good && got_rows[at] == r && got_slots[at] == rows[r].slot && got_positions[at] == p &&
             got_ids[at] == host.tokens[static_cast<size_t>(rows[r].slot) * kLen + p];
    }
  }
  for (auto at = static_cast<size_t>(live); at < static_cast<size_t>(padded); ++at) {
    good = good && got_ids[at] == -1 && got_positions[at] == -1 && got_rows[at] == 0 &&
           got_slots[at] == 0;
  }
  expect(good, "gather_tokens");
}

struct Pool {
  Pool(int bases_, int blocks_, int64_t bytes_)
      : num_bases(bases_),
        blocks(blocks_),
        bytes(bytes_),
        memory(static_cast<size_t>(bases_) * blocks_ * bytes_),
        bases(pointers()) {}
  std::vector<void*> pointers() const {
    std::vector<void*> out;
    for (int i = 0; i < num_bases; ++i)
      out.push_back(memory.get() + static_cast<int64_t>(i) * blocks * bytes);
    return out;
  }
  BlockArrays arrays() const { return {bases.get(), num_bases, bytes}; }

  int num_bases, blocks;
  int64_t bytes;
  Device<uint8_t> memory;
  Device<void*> bases;
};

void check_blocks(cudaStream_t stream) {
  for (int64_t bytes : {16, 1008, 32768}) {
    Pool pool(6, 20, bytes);
    std::vector<uint8_t> host(pool.memory.size());
    for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
    pool.memory.upload(host);
    const std::vector<BlockCopy> pairs = {{1, 2}, {2, 3}, {5, 1},
                                          {7, 7}, {3, 9}, {0, 5}};  // chains
    Device<BlockCopy> device_pairs(pairs);
    CHECK_CUDA(copy_blocks(pool.arrays(), device_pairs.get(), static_cast<int32_t>(pairs.size()),
                           Launch(stream, true)));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (const BlockCopy& p : pairs) {
      for (int b = 0; b < 6; ++b) {
        std::memmove(&host[static_cast<size_t>((b * 20 + p.dst) * bytes)],
                     &host[static_cast<size_t>((b * 20 + p.src) * bytes)],
                     static_cast<size_t>(bytes));
      }
    }
    expect(pool.memory.download() == host, "copy_blocks of " + std::to_string(bytes));

    uint8_t* pinned = nullptr;
    CHECK_CUDA(cudaMallocHost(&pinned, static_cast<size_t>(8 * 6 * bytes)));
    const std::vector<BlockCopy> out = {{4, 7}, {19, 0}, {11, 3}}, in = {{7, 10}, {0, 12}, {3, 4}};
    Device<BlockCopy> device_out(out), device_in(in);
    CHECK_CUDA(swap_out(pool.arrays(), pinned, device_out.get(), 3, stream));
    CHECK_CUDA(swap_in(pool.arrays(), pinned, device_in.get(), 3, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    bool good = true;
    std::vector<uint8_t> want = host;
    for (size_t i = 0; i < out.size(); ++i) {
      for (int b = 0; b < 6; ++b) {
        const uint8_t* from = &host[static_cast<size_t>((b * 20 + out[i].src) * bytes)];
        good = good && std::memcmp(pinned + (out[i].dst * 6 + b) * bytes, from,
                                   static_cast<size_t>(bytes)) == 0;
        std::memcpy(&want[static_cast<size_t>((b * 20 + in[i].dst) * bytes)], from,
                    static_cast<size_t>(bytes));
      }
    }
    expect(good && pool.memory.download() == want, "swap of " + std::to_string(bytes));
    cudaFreeHost(pinned);
  }
}

void bench(cudaStream_t stream) {
  Device<uint8_t> a(size_t{2} << 30);
  a.fill(1);
  const double ceiling = read_ceiling(a.get(), a.size(), stream);
  std::printf("read ceiling %.0f GB/s\n%-34s %9s %9s %8s\n", ceiling, "op", "us", "GB/s", "of rc");
  const auto line = [&](const char* name, double us, double bytes) {
    std::printf("%-34s %9.2f %9.0f %7.0f%%\n", name, us, bytes / us / 1e3,
                100 * bytes / us / 1e3 / ceiling);
  };
  {
    std::vector<int32_t> words(kHeaderWords, 0), index;
    words[kNumBlockSets] = 16;
    for (int i = 0; i < 16; ++i) words.insert(words.end(), {i, 3, 7});
    index_plan(words.data(), index);
    Device<int32_t> device_words(words), device_index(index), blocks(256 * 64);
    DeviceSlots slots = {};
    slots.blocks = blocks.get();
    slots.max_blocks = 64;
    std::printf("apply_slots, 16 block sets %15.2f us\n", time_in_graph(stream, 40, 9, [&](int) {
                  CHECK_CUDA(apply_slots(slots, device_words.get(), device_index.get(), stream));
                }));
  }
  // Blocks of 16 tokens of Llama-3-8B in bf16: 64 arrays of 32 KB.
  Pool pool(64, 256, 32768);
  std::vector<BlockCopy> pairs;
  for (int i = 0; i < 128; ++i) pairs.push_back({i * 2 % 256, 255 - i * 2 % 256});
  Device<BlockCopy> device_pairs(pairs);
  std::vector<BlockCopy> swaps;
  for (int i = 0; i < 128; ++i) swaps.push_back({(i * 37) % 128, i});
  Device<BlockCopy> device_swaps(swaps);
  const double block_bytes = 64.0 * 32768;
  line("copy 4 blocks, 64 arrays",
       time_in_graph(
           stream, 10, 9,
           [&](int) { CHECK_CUDA(copy_blocks(pool.arrays(), device_pairs.get(), 4, stream)); }),
       2 * 4 * block_bytes);
  line("copy 128 blocks, 64 arrays",
       time_in_graph(
           stream, 3, 9,
           [&](int) { CHECK_CUDA(copy_blocks(pool.arrays(), device_pairs.get(), 128, stream)); }),
       2 * 128 * block_bytes);
  uint8_t* pinned = nullptr;
  CHECK_CUDA(cudaMallocHost(&pinned, static_cast<size_t>(128 * block_bytes)));
  std::memset(pinned, 1, static_cast<size_t>(128 * block_bytes));
  for (int n : {1, 16, 128}) {
    char name[80];
    std::snprintf(name, sizeof name, "swap out %d blocks", n);
    line(name,
         time_in_graph(stream, 2, 7,
                       [&](int) {
                         CHECK_CUDA(swap_out(pool.arrays(), pinned, device_swaps.get(), n, stream));
                       }),
         n * block_bytes);
    std::snprintf(name, sizeof name, "swap in %d blocks", n);
    line(name,
         time_in_graph(stream, 2, 7,
                       [&](int) {
                         CHECK_CUDA(swap_in(pool.arrays(), pinned, device_swaps.get(), n, stream));
                       }),
         n * block_bytes);
  }
  const size_t all = static_cast<size_t>(128 * block_bytes);
  line("memcpy out, one piece",
       time_in_graph(stream, 2, 7,
                     [&](int) {
                       CHECK_CUDA(
                           cudaMemcpyAsync(pinned, a.get(), all, cudaMemcpyDeviceToHost, stream));
                     }),
       128 * block_bytes);
  line("memcpy in, one piece",
       time_in_graph(stream, 2, 7,
                     [&](int) {
                       CHECK_CUDA(
                           cudaMemcpyAsync(a.get(), pinned, all, cudaMemcpyHostToDevice, stream));
                     }),
       128 * block_bytes);
  cudaFreeHost(pinned);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  if (what != "bench") {
    check_slots(what == "quick" ? 8 : 60, stream);
    check_blocks(stream);
    std::printf("table checks: %d failures\n", failures);
  }
  if (what != "check" && what != "quick") bench(stream);
  return failures == 0 ? 0 : 1;
}
