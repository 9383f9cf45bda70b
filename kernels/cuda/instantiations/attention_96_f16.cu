#include "kernels/cuda/attention_kernels.cuh"

namespace quire::cuda {

const RegisterAttentionInstance attention_96_f16(MakeAttentionInstance<96, KvStorage::kF16>());

}  // namespace quire::cuda
