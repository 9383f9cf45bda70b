#include "kernels/cuda/attention_kernels.cuh"

namespace quire::cuda {

const RegisterAttentionInstance attention_64_bf16(MakeAttentionInstance<64, KvStorage::kBf16>());

}  // namespace quire::cuda
