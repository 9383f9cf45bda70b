#include "kernels/cuda/attention_kernels.cuh"

namespace quire::cuda {

const RegisterAttentionInstance attention_128_int8(MakeAttentionInstance<128, KvStorage::kInt8>());

}  // namespace quire::cuda
