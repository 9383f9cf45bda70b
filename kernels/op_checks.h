#pragma once

#include <initializer_list>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/ops.h"

// What every backend checks before an op runs: shapes, types, ranges of ids and slots. kInvalidArgument naming the
// op, the operand, what came and what was expected. Contents of device memory are not looked at. Thread-safe.
namespace quire {

// Parts of equal cols that their formats' blocks divide, with data, and row orders of ids within the part.
absl::Status CheckPackWeight(absl::Span<const WeightView> parts);
// That the cache is of one of the types the backend has; every op that reads or writes values of it asks.
absl::Status CheckKvType(const char* op, const PagedKvView& kv, std::initializer_list<DType> types);
absl::Status CheckEmbeddingLookup(const EmbeddingLookupParams& params);
absl::Status CheckAddRmsNorm(const AddRmsNormParams& params);
absl::Status CheckLinear(const LinearParams& params);
// Both, and that the norm feeds the layer and has no delta.
absl::Status CheckNormLinear(const AddRmsNormParams& norm, const LinearParams& linear);
// That an op takes what the one before it leaves. `what` names the op and its view.
absl::Status CheckSameView(const char* what, const TensorView& view, const TensorView& expected);
absl::Status CheckRopeTable(const RopeTableParams& params);
absl::Status CheckRopeAndStoreKv(const RopeAndStoreKvParams& params);
absl::Status CheckAttentionBatch(const AttentionBatch& batch);
// `batch` is the one of params.plan, already checked.
absl::Status CheckPagedAttention(const PagedAttentionParams& params, const AttentionBatch& batch);
absl::Status CheckSiluMul(const SiluMulParams& params);
absl::Status CheckGatherRows(const GatherRowsParams& params);
absl::Status CheckCopyBlocks(const CopyBlocksParams& params);
absl::Status CheckSampleTokens(const SampleTokensParams& params);

}  // namespace quire
