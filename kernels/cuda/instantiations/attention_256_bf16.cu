#include "kernels/cuda/attention_kernels.cuh"

namespace quire::cuda {

const RegisterAttentionInstance attention_256_bf16(MakeAttentionInstance<256, KvStorage::kBf16>());

}  // namespace quire::cuda
