#include "kernels/cuda/attention_kernels.cuh"

namespace quire::cuda {

const RegisterAttentionInstance attention_64_f16(MakeAttentionInstance<64, KvStorage::kF16>());

}  // namespace quire::cuda
