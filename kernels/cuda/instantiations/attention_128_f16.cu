#include "kernels/cuda/attention_kernels.cuh"

namespace quire::cuda {

const RegisterAttentionInstance attention_128_f16(MakeAttentionInstance<128, KvStorage::kF16>());

}  // namespace quire::cuda
