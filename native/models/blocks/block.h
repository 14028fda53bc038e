// What a layer is made of: blocks that read the residual stream and add to it.
//
//   hidden += residual_scale * after(block(before(hidden)))
//
// A new kind of block (another attention, a mixture of experts) is a class here and a type in
// BlockConfig; models put blocks together.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/memory/arena.h"
#include "models/blocks/layers.h"
#include "models/config/config.h"

namespace inferd {

// What a step brings along. Made by the engine, valid for one forward.
struct StepContext {
  std::span<const KvLayer> kv;  // [kv_specs]
  const SlotTables& slots;
  const StepBatch& batch;
  const Picks* picks;  // null: hidden states of all tokens are wanted
};

// The residual stream between two blocks: views of the model's buffers, whose first `rows` rows
// count. `normed` and `delta` hold nothing between blocks.
struct Stream {
  Tensor hidden, normed, delta;
  Tensor joined{};  // [rows, 2 hidden], see AttentionConfig::joined
  int64_t rows = 0;
  const AdapterRows* adapters = nullptr;      // of these rows; null: none uses an adapter
  NextReader next_reader = NextReader::kAny;  // of what the block in hand adds
};

// The first `rows` rows of a buffer.
inline Tensor head_rows(const Tensor& t, int64_t rows) {
  Tensor head = t;
  head.shape[0] = rows;
  return head;
}

// How a block is tied to the stream: its norms, and the sum.
class Residual {
 public:
  Residual(const ModelConfig& model, const BlockConfig& config)
      : config_(config),
        scale_(model.residual_scale),
        eps_(model.norm_eps),
        whole_(model.shard.whole()),
        plain_(whole_ && config.norm_after.empty() && model.residual_scale == 1) {}

  // `layer`: "model.layers.3."
  void describe(WeightList& list, const std::string& layer, const ModelConfig& model);
  // Once loaded: folds the norm before into the linear that reads it, where the backend can.
  void fold(Backend& backend, Linear& reader) { reader.fold(backend, before_); }
  // out = linear(before(hidden)), with the linear's own epilogue, for which `scratch` is.
  void read(Backend& backend, const Stream& s, const Linear& linear, Tensor out,
            Tensor scratch) const;
  // before(hidden) for several readers, in s.normed; nothing was folded then.
  Tensor read(Backend& backend, const Stream& s) const;
  // How the linear that `write` gets is to be made.
  Epilogue epilogue() const { return plain_ ? Epilogue::kAdd : Epilogue::kStore; }
  // hidden += scale * after(linear(x)), summed over the ranks.
  void write(Backend& backend, const Stream& s, const Linear& linear, const Tensor& x) const;
  // What a block is to the stream that it reads with one linear.
  NextReader one_reader() const {
    return config_.norm_before.empty() ? NextReader::kAny : NextReader::kOneLinear;
  }
  // Where a block whose input is read() adds its parts up: in `hidden` itself where nothing comes
  // between them and the sum, and then nothing is left to write; else in s.delta.
  bool adds_directly() const { return plain_ && !config_.norm_before.empty(); }
  // hidden += scale * after(what s.delta holds), summed over the ranks.
  void write(Backend& backend, const Stream& s) const;

 private:
  // What the ranks add up goes to the stream as it is.
  bool summed_at_once() const { return !whole_ && config_.norm_after.empty(); }

  BlockConfig config_;
  float scale_, eps_;
  bool whole_;  // one rank has all of the model
  bool plain_;  // nothing comes between the linear and the sum
  DeviceVector before_, after_;
};

// Of an attention that is the last block that looks at other tokens: from here on `s` has only the
// picked rows of the stream, in the buffer that `normed` was. Returns those of `attended`, in the
// front of `free`, a buffer at least as wide that holds nothing any more.
Tensor pick_rows(Backend& backend, const Picks& picks, Stream& s, const Tensor& attended,
                 const Tensor& free);

// What the last step made a block's experts do.
struct ExpertLoad {
  const int32_t* offsets;  // [held + 1] device: Routing::offsets of that step
  int32_t held, chosen;    // experts held here; those of a token
  int64_t bytes;           // of the weights of one of them, as they lie here
  int64_t parameters;      // of one expert, as all ranks hold it
};

class Block {
 public:
  virtual ~Block() = default;

  // Appends the checkpoint tensors it needs. Their store functions refer to this object.
  virtual void describe(WeightList& list, const std::string& layer) = 0;
  virtual void finish_loading(Backend& backend) = 0;
  // Takes its buffers from `arena`; blocks never run at the same time and share them.
  virtual void carve(Arena& arena, DType activation, int64_t max_tokens) = 0;
  // Runs on all rows of the stream. With `narrow` it is the last block of the model that looks at
  // other tokens: from its attention on only the picked rows go on, and `s` has only those.
  virtual void forward(Backend& backend, const StepContext& step, Stream& s, bool narrow) const = 0;
  // In place of forward() in a step without tokens: what ranks with rows of their own wait for.
  virtual void stand_by(Backend& backend) const { (void)backend; }
  // How it reads the stream.
  virtual NextReader reader() const { return NextReader::kAny; }
  // The keys and values that it keeps, or null.
  virtual const KvSpec* kv() const { return nullptr; }
  // Of experts, once everything is loaded.
  virtual std::optional<ExpertLoad> expert_load() const { return {}; }
  // What backends may refuse.
  virtual LayerShape shape() const = 0;
};

// `kv_index`: of this block in StepContext::kv, if it has keys and values. `ropes`: one for each of
// ModelConfig::ropes; they outlive the block.
std::unique_ptr<Block> make_block(const ModelConfig& model, const BlockConfig& config,
                                  const std::vector<RopeTable>& ropes, size_t kv_index);

}  // namespace inferd
