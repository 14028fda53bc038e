// Table rows of the collectives between ranks, each rank a thread: attributes | inputs -> outputs.
//
// comm_all_reduce: ranks rows cols times | x[ranks * rows, cols] -> out[ranks * rows, cols]
//   Rank r has rows [r * rows, (r + 1) * rows) of x; all ops but the first work on the sums before.
//
// comm_all_gather: ranks rows cols | x[ranks * rows, cols] -> out[ranks * rows, ranks * cols]
//
// comm_rows: ranks cols | counts[ranks] x[sum of counts, cols] y[ranks * sum, cols]
//     -> all[ranks * sum, cols] first[ranks] back[sum, cols]
//   Rank r brings counts[r] rows of x, gets all of them, and the sums of its own rows over the
//   ranks, of which rank r adds the rows [r * sum, (r + 1) * sum) of y.
//
// comm_parts: ranks times lost at_op limit_ms how -> ended[ranks] waited_ms[ranks]
//   `times` small reductions, of which rank `lost` does not come to op `at_op`, and how: "leaves"
//   for good, "throws" and aborts the group, "sleeps" for three limits. ended: 1 of a rank that was
//   told so.
//
// comm_abandoned: ranks cols rounds | -> ended[ranks]
//   `rounds` groups whose ranks reduce a matrix of their own until the group is aborted from
//   outside, each time a little later; each rank frees its matrix as soon as it is told. ended: how
//   often.
#include "cpu/runtime/comm.h"

#include <algorithm>
#include <thread>

#include "addon/op_table/op_rows.h"
#include "core/error.h"

namespace inferd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kMostRanks = 64;
constexpr std::chrono::milliseconds kPatience{60'000};

int32_t ranks_of(const OpTestCall& c) {
  const int32_t ranks = c.size("ranks");
  if (ranks < 1 || ranks > kMostRanks) throw Error(ErrorCode::kUsage, "runOp: too many ranks");
  return ranks;
}

// Runs body(comm) on a thread for each rank of a new group.
template <typename Body>
void on_ranks(int32_t ranks, std::chrono::milliseconds limit, const Body& body) {
  const uint64_t id = cpu::new_group();
  std::vector<std::unique_ptr<Comm>> comms;
  for (int32_t r = 0; r < ranks; ++r)
    comms.push_back(cpu::join_group({.id = id, .rank = r, .size = ranks, .limit = limit}));
  std::vector<std::thread> threads;
  for (const auto& comm : comms) threads.emplace_back([&] { body(*comm); });
  for (std::thread& t : threads) t.join();
}

Tensor rows_of(const Tensor& all, int32_t rank, int32_t rows) {
  return Tensor::matrix(all.as<float>() + rank * rows * all.cols(), all.dtype, rows, all.cols());
}

Napi::Object run_all_reduce(OpTestCall& c) {
  const int32_t ranks = ranks_of(c), rows = c.size("rows"), times = c.size("times");
  const Tensor x = c.matrix("x", DType::kF32, int64_t{ranks} * rows, c.size("cols"));
  c.output("out", x);
  return c.run([&] {
    on_ranks(ranks, kPatience, [&](Comm& comm) {
      for (int32_t i = 0; i < times; ++i) comm.all_reduce(rows_of(x, comm.rank(), rows));
    });
  });
}

Napi::Object run_all_gather(OpTestCall& c) {
  const int32_t ranks = ranks_of(c), rows = c.size("rows"), cols = c.size("cols");
  const Tensor x = c.matrix("x", DType::kF32, int64_t{ranks} * rows, cols);
  const Tensor out = c.new_activations(ranks * rows, int64_t{ranks} * cols);
  c.output("out", out);
  return c.run([&] {
    on_ranks(ranks, kPatience, [&](Comm& comm) {
      comm.all_gather(rows_of(out, comm.rank(), rows), rows_of(x, comm.rank(), rows));
    });
  });
}

Napi::Object run_rows(OpTestCall& c) {
  const int32_t ranks = ranks_of(c), cols = c.size("cols");
  const int32_t* counts = c.host_ints("counts", ranks);
  std::vector<int32_t> begins = {0};
  for (int32_t r = 0; r < ranks; ++r) begins.push_back(begins.back() + counts[r]);
  const int32_t total = begins.back();
  const Tensor x = c.matrix("x", DType::kF32, total, cols);
  const Tensor y = c.matrix("y", DType::kF32, int64_t{ranks} * total, cols);
  const Tensor all = c.new_activations(int64_t{ranks} * total, cols);
  const Tensor back = c.new_activations(total, cols);
  auto* first = c.new_array<int32_t>(ranks);
  c.output("all", all);
  c.output("back", back);
  c.output_ints("first", first, ranks);
  const auto own = [&](const Tensor& t, int32_t rank) {
    const int32_t begin = begins[static_cast<size_t>(rank)];
    return Tensor::matrix(t.as<float>() + begin * cols, t.dtype, counts[rank], cols);
  };
  return c.run([&] {
    on_ranks(ranks, kPatience, [&](Comm& comm) {
      const int32_t rank = comm.rank();
      const GatheredRows rows = comm.gather_rows(rows_of(all, rank, total), own(x, rank));
      first[rank] = static_cast<int32_t>(rows.first);
      comm.scatter_sums(own(back, rank), rows_of(y, rank, total), rows.first);
    });
  });
}

Napi::Object run_parts(OpTestCall& c) {
  const int32_t ranks = ranks_of(c), times = c.size("times"), lost = c.size("lost");
  const int32_t at_op = c.size("at_op");
  const std::chrono::milliseconds limit(c.size("limit_ms"));
  const std::string how = c.text("how");
  auto* ended = c.new_array<int32_t>(ranks);
  auto* waited = c.new_array<int32_t>(ranks);
  c.output_ints("ended", ended, ranks);
  c.output_ints("waited_ms", waited, ranks);
  return c.run([&] {
    on_ranks(ranks, limit, [&](Comm& comm) {
      float value = 1;
      auto begun = Clock::now();
      try {
        for (int32_t i = 0; i < times; ++i) {
          if (comm.rank() == lost && i == at_op) {
            if (how == "leaves") return;
            if (how == "throws") comm.abort("a rank threw");
            if (how == "sleeps") std::this_thread::sleep_for(3 * limit);
          }
          begun = Clock::now();
          comm.all_reduce(Tensor::matrix(&value, DType::kF32, 1, 1));
        }
      } catch (const Error&) {
        const auto passed =
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun);
        ended[comm.rank()] = 1;
        waited[comm.rank()] = static_cast<int32_t>(passed.count());
      }
    });
  });
}

Napi::Object run_abandoned(OpTestCall& c) {
  const int32_t ranks = ranks_of(c), cols = c.size("cols"), rounds = c.size("rounds");
  auto* ended = c.new_array<int32_t>(ranks);
  c.output_ints("ended", ended, ranks);
  return c.run([&] {
    for (int32_t round = 0; round < rounds; ++round) {
      on_ranks(ranks, kPatience, [&](Comm& comm) {
        auto own = std::make_unique<float[]>(static_cast<size_t>(cols));
        std::thread ender;
        if (comm.rank() == 0) {
          ender = std::thread([&comm, round] {
            std::this_thread::sleep_for(std::chrono::milliseconds(round));
            comm.abort("a test is over", ErrorCode::kDevice);
          });
        }
        try {
          for (;;) comm.all_reduce(Tensor::matrix(own.get(), DType::kF32, 1, cols));
        } catch (const Error&) {
          own.reset();
          ++ended[comm.rank()];
        }
        if (ender.joinable()) ender.join();
      });
    }
  });
}

constexpr OpTest kTests[] = {{"comm_all_reduce", run_all_reduce},
                             {"comm_all_gather", run_all_gather},
                             {"comm_rows", run_rows},
                             {"comm_parts", run_parts},
                             {"comm_abandoned", run_abandoned}};

}  // namespace

std::span<const OpTest> comm_tests() { return kTests; }

}  // namespace inferd
