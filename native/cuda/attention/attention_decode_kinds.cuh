// The decode kernel for two kinds of rows that are compiled apart, in attention_decode_runs.cu and
// attention_decode_with_rope.cu. Called by attention_decode.cu alone, which has checked the
// arguments.
#pragma once
#include "cuda/attention/attention_decode_args.cuh"

namespace inferd::cuda {

cudaError_t decode_attention_of_runs(Half type, const PagedKv& kv, const DecodeArgs& args,
                                     dim3 grid, const Launch& launch);
cudaError_t decode_attention_with_rope(Half type, const PagedKv& kv, const DecodeArgs& args,
                                       dim3 grid, const Launch& launch);

}  // namespace inferd::cuda
