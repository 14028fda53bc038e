// The decode kernel for rows of several tokens and for rows with a rope, each of
// which is compiled apart. Called by attention_decode.cu alone, which has checked the arguments.
#pragma once
#include "cuda/attention/attention_decode_args.cuh"

namespace inferd::cuda {

cudaError_t decode_attention_of_runs(Half type, const PagedKv& kv, const DecodeArgs& args,
                                     dim3 grid, const Launch& launch);
cudaError_t decode_attention_with_rope(Half type, const PagedKv& kv, const DecodeArgs& args,
                                       dim3 grid, const Launch& launch);

}  // namespace inferd::cuda
