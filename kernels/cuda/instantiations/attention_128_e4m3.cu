#include "kernels/cuda/attention_kernels.cuh"

namespace quire::cuda {

const RegisterAttentionInstance attention_128_e4m3(MakeAttentionInstance<128, KvStorage::kE4m3>());

}  // namespace quire::cuda
