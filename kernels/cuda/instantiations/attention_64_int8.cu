#include "kernels/cuda/attention_kernels.cuh"

namespace quire::cuda {

const RegisterAttentionInstance attention_64_int8(MakeAttentionInstance<64, KvStorage::kInt8>());

}  // namespace quire::cuda
