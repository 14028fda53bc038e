// See lone_comm.h.
#include "cpu/runtime/lone_comm.h"

#include <cstring>
#include <string>

namespace inferd::cpu {
namespace {

class LoneComm final : public Comm {
 public:
  LoneComm(int32_t rank, int32_t size) : rank_(rank), size_(size) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }
  void all_reduce(Tensor) override { check_end(); }
  void all_gather(Tensor out, const Tensor& part) override {
    check_end();
    for (int64_t row = 0; row < part.rows(); ++row) {
      const float* from = part.as<const float>() + row * part.stride[0];
      float* to = out.as<float>() + row * out.stride[0];
      for (int64_t r = 0; r < size_; ++r)
        std::memcpy(to + r * part.cols(), from, static_cast<size_t>(part.cols()) * sizeof(float));
    }
  }
  // As if every rank brought the same.
  GatheredRows gather_rows(Tensor out, const Tensor& part) override {
    check_end();
    const auto width = static_cast<size_t>(part.cols()) * sizeof(float);
    for (int64_t i = 0; i < size_ * part.rows(); ++i) {
      std::memcpy(out.as<float>() + i * out.stride[0],
                  part.as<const float>() + i % part.rows() * part.stride[0], width);
    }
    return {rank_ * part.rows(), size_ * part.rows()};
  }
  void scatter_sums(Tensor out, const Tensor& sums, int64_t first) override {
    check_end();
    for (int64_t i = 0; i < out.rows(); ++i) {
      std::memcpy(out.as<float>() + i * out.stride[0],
                  sums.as<const float>() + (first + i) * sums.stride[0],
                  static_cast<size_t>(out.cols()) * sizeof(float));
    }
  }
  void barrier() override { check_end(); }
  void minimum(std::span<int32_t>) override { check_end(); }
  bool ended() const override { return ended_; }
  void check_end() const override {
    if (ended_) throw Error(code_, reason_);
  }
  void set_limit(std::chrono::milliseconds) override {}
  void abort(const std::string& reason, ErrorCode code) override {
    if (ended_) return;
    ended_ = true;
    reason_ = reason;
    code_ = code;
  }

 private:
  const int32_t rank_, size_;
  bool ended_ = false;
  std::string reason_;
  ErrorCode code_ = ErrorCode::kDevice;
};

}  // namespace

std::unique_ptr<Comm> make_lone_comm(int32_t rank, int32_t size) {
  return std::make_unique<LoneComm>(rank, size);
}

}  // namespace inferd::cpu
