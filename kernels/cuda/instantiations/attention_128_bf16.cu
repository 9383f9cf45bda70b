#include "kernels/cuda/attention_kernels.cuh"

namespace quire::cuda {

const RegisterAttentionInstance attention_128_bf16(MakeAttentionInstance<128, KvStorage::kBf16>());

}  // namespace quire::cuda
