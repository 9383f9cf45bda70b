#include "kernels/cpu/attention_impl.h"
#include "kernels/cpu/elementwise_impl.h"
#include "kernels/cpu/vec16_scalar.h"
#include "kernels/cpu/vector_kernels.h"

namespace quire {

const VectorKernels& VectorKernelsScalar() {
  using V = scalar::Vec16;
  static constexpr VectorKernels kKernels = {
      .name = V::kName,
      .add_rms_norm = elementwise::AddRmsNorm<V>,
      .rotate = elementwise::Rotate<V>,
      .store_f16 = elementwise::StoreF16<V>,
      .store_bf16 = elementwise::StoreBf16<V>,
      .store_int8 = elementwise::StoreInt8<V>,
      .silu_mul = elementwise::SiluMul<V>,
      .attend = attention::Attend<V>,
      .merge_partials = attention::MergePartials<V>,
  };
  return kKernels;
}

}  // namespace quire
