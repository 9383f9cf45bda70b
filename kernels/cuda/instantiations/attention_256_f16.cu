#include "kernels/cuda/attention_kernels.cuh"

namespace quire::cuda {

const RegisterAttentionInstance attention_256_f16(MakeAttentionInstance<256, KvStorage::kF16>());

}  // namespace quire::cuda
