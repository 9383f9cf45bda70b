#include "kernels/cuda/attention_kernels.cuh"

namespace quire::cuda {

const RegisterAttentionInstance attention_64_e4m3(MakeAttentionInstance<64, KvStorage::kE4m3>());

}  // namespace quire::cuda
