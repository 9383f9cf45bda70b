#include "kernels/cuda/attention_kernels.cuh"

namespace quire::cuda {

const RegisterAttentionInstance attention_80_f16(MakeAttentionInstance<80, KvStorage::kF16>());

}  // namespace quire::cuda
